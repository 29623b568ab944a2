"""The linearised network: f(x; θ) ≈ f(x; θ*) + J(x)(θ − θ*), a Gaussian over functions, exactly."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.engine import chunks, forms
from osculate.curvature.products import jvp
from osculate.posteriors import Gaussian, as_gaussian


def unit_columns(f: Float[Tensor, "N *C"]) -> Float[Tensor, "V N *C"]:
    """One column for each output: the rows are those of the Jacobian."""
    count = f[0].numel()
    eye = torch.eye(count, dtype=f.dtype, device=f.device)
    return eye.unsqueeze(1).expand(-1, len(f), -1).reshape(count, *f.shape)


def projections(q: Gaussian, x: Tensor, diagonal: bool) -> Iterator[tuple[Tensor, list[Any]]]:
    """f(x) and what the variance needs with any prior, chunk by chunk: the costly part, independent of the prior."""
    x = x.to(q.network.device)
    with torch.no_grad():
        outputs = q.network(x[:1])[0].numel()
    for part in chunks(q.fit.plan, len(x), outputs, q.network.dtype.itemsize):
        f, found = forms(q.network, q.fit.plan, x[part], unit_columns)
        yield f, q.structure.project(found, diagonal)


def moments(q: Gaussian, x: Tensor, diagonal: bool = False) -> tuple[Tensor, Tensor]:
    """The mean f(x; θ*) and the covariance (N, c, c) of the function values, or their variances (N, c)."""
    parts = [(f, q.precision.contract(p, diagonal)) for f, p in projections(q, x, diagonal)]
    return torch.cat([f for f, _ in parts]), torch.cat([v for _, v in parts])


def functional_variance(q: Any, x: Tensor, diagonal: bool = False) -> Tensor:
    r"""The variance of the linearised function values.

    .. math:: \operatorname{Cov}[f(x_n)] = J(x_n) \Lambda^{-1} J(x_n)^\top

    An array of N × C × P numbers is never built: each layer's factors are contracted with the posterior.

    Args:
        q: a Gaussian posterior, or what ``osc.train`` returned.
        x: inputs (N, …).
        diagonal: only the variance of each output.

    Returns:
        (N, C, C), or (N, C) where ``diagonal``; outputs of other shapes are flattened to C.

    Raises:
        TypeError: the posterior has no linearised function (a point, samples).

    Cost: one forward pass and C backward passes without weight gradients, chunked to a memory budget. [immer2021]

    >>> import osculate as osc
    >>> X, Y = torch.randn(30, 2), torch.randn(30, 3)
    >>> q = osc.laplace(torch.nn.Linear(2, 3), osc.likelihoods.Gaussian(), (X, Y), prior=1.0)
    >>> functional_variance(q, X[:5]).shape, functional_variance(q, X[:5], diagonal=True).shape
    (torch.Size([5, 3, 3]), torch.Size([5, 3]))
    """
    return moments(as_gaussian(q, "functional_variance"), x, diagonal)[1]


def joint_covariance(q: Gaussian, x: Tensor) -> tuple[Float[Tensor, " K"], Float[Tensor, "K K"]]:
    """Mean and covariance of the function values at all inputs together, K = N·C ordered by input.

    Cost: K × P numbers of one block of parameters at a time, and K² for the answer.
    """
    f, found = forms(q.network, q.fit.plan, x.to(q.network.device), unit_columns)
    return f.reshape(-1), q.precision.covariance_of_rows(found)


def sampled_linear_functions(q: Gaussian, x: Tensor, samples: int, generator: torch.Generator | None) -> Tensor:
    """f(x; θ*) + J(x)(θ_s − θ*) for S draws: one Jacobian-vector product each, no covariance."""
    x = x.to(q.network.device)
    result = []
    for _ in range(samples):
        f, tangent = jvp(q.network, x, q.sample(1, generator)[0] - q.mean)
        result.append((f + tangent).detach())
    return torch.stack(result)
