"""The network itself: at sampled weights, or at the mode."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.products import activations
from osculate.inputs import Inputs, count, moved, take
from osculate.memory import budget, even_parts
from osculate.parameters import Network
from osculate.posteriors import Gaussian

#: The most inputs that pass through a network at once.
ROWS = 1024


def sampled_networks(
    q: Gaussian, x: Inputs, samples: int, generator: torch.Generator | None = None, memory: str | int | None = None
) -> Iterator[Float[Tensor, "N *C"]]:
    """f(x; θ_s) for S draws of the weights, one after the other, each used for all inputs."""
    x = moved(x, q.network.device)
    parts = _at_once(q.network, x, memory)
    for _ in range(samples):
        yield _outputs(q.network, x, parts, q.network.space.unflatten(q.sample(1, generator)[0]))


def network_at_mode(network: Network, x: Inputs, memory: str | int | None = None) -> Float[Tensor, "N *C"]:
    """f(x; θ*)."""
    x = moved(x, network.device)
    return _outputs(network, x, _at_once(network, x, memory))


def _at_once(network: Network, x: Inputs, memory: str | int | None) -> list[slice]:
    """Which inputs pass through the network together: those whose activations fit into the memory."""
    each = network.state_dtype.itemsize * activations(network, x)
    return even_parts(count(x), min(ROWS, budget(memory, network.device) // each))


def _outputs(
    network: Network, x: Inputs, parts: list[slice], theta: dict[str, Tensor] | None = None
) -> Float[Tensor, "N *C"]:
    whole = torch.empty(0)
    with torch.no_grad():
        for part in parts:
            f = network(take(x, part), theta).to(network.state_dtype)
            if len(parts) == 1:
                return f
            if part.start == 0:
                whole = f.new_empty(count(x), *f.shape[1:])
            whole[part] = f
    return whole
