"""Matrix-free products with the Jacobian of a network at its mode."""

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.parameters import Network


def jvp(network: Network, x: Tensor, tangent: Float[Tensor, " P"]) -> tuple[Tensor, Tensor]:
    """f(x) and J(x) v for one direction v in parameter space; costs about two forward passes."""
    parameters = network.parameters

    def outputs(theta: dict[str, Tensor]) -> Tensor:
        return network(x, theta)

    f, product = torch.func.jvp(outputs, (parameters,), (network.space.unflatten(tangent),))[:2]
    return f, product
