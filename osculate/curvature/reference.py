"""Dense reference matrices by automatic differentiation, with which faster results are compared.

Slow, and independent of layers; for up to a few thousand parameters.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import jacrev
from torch.nn.attention import SDPBackend, sdpa_kernel

from osculate.inputs import Inputs, call, count
from osculate.likelihoods import Likelihood
from osculate.parameters import ParameterSpace


def _parts(model: nn.Module) -> tuple[ParameterSpace, Float[Tensor, " P"]]:
    tensors = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    space = ParameterSpace.of(tensors)
    return space, space.flatten(tensors)


def _outputs(model: nn.Module, theta: dict[str, Tensor], x: Inputs) -> Tensor:
    return call(model, x, theta)


def jacobian(model: nn.Module, x: Inputs) -> Float[Tensor, "N C P"]:
    r"""J_n = ∂f(x_n; θ)/∂θ at the module's parameters, outputs flattened to C for each input."""
    space, theta = _parts(model)

    def outputs(flat: Tensor) -> Tensor:
        return _outputs(model, space.unflatten(flat), x).reshape(count(x), -1)

    return jacrev(outputs)(theta)


def ggn(model: nn.Module, likelihood: Likelihood, x: Inputs, y: Tensor) -> Float[Tensor, "P P"]:
    r"""The generalised Gauss–Newton matrix G = Σ_n J_nᵀ Λ_n J_n with Λ = −∂² log p(y|f)/∂f²."""
    J = jacobian(model, x)
    with torch.no_grad():
        output_hessian = likelihood.hessian(call(model, x), y)
    return torch.einsum("ncp,ncd,ndq->pq", J, output_hessian, J)


def hessian(model: nn.Module, likelihood: Likelihood, x: Inputs, y: Tensor) -> Float[Tensor, "P P"]:
    r"""The Hessian of −Σ_n log p(y_n | f(x_n; θ))."""
    space, theta = _parts(model)

    def negative_log_likelihood(flat: Tensor) -> Tensor:
        return -likelihood.log_prob(_outputs(model, space.unflatten(flat), x), y).sum()

    # row by row: torch's batched second derivatives are wrong for some normalisations, also forward over reverse
    with sdpa_kernel(SDPBackend.MATH):  # the fused attention has no second derivative
        return torch.autograd.functional.hessian(negative_log_likelihood, theta)
