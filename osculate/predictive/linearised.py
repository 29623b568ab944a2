"""The linearised network: f(x; θ) ≈ f(x; θ*) + J(x)(θ − θ*), a Gaussian over functions, exactly."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.columns import Columns
from osculate.curvature.engine import pieces
from osculate.curvature.products import jvp
from osculate.inputs import Inputs, count, moved
from osculate.likelihoods import Likelihood
from osculate.memory import budget, free, readable
from osculate.posteriors import Gaussian, as_gaussian

#: Takes outputs (N, *C) to one column for each of them, in groups that belong together.
UnitColumns: TypeAlias = Callable[[Tensor], Columns]


@dataclass(frozen=True)
class Projected:
    """What the variance of some outputs of some data needs with any prior.

    Attributes:
        f: outputs (n, *C) of these data.
        first: whether these are the first of their outputs.
        last: whether they are the last.
        group: outputs that belong together.
        parts: block by block; made when they are asked for.
    """

    f: Tensor
    first: bool
    last: bool
    group: int
    parts: Iterable[Any]


def projections(q: Gaussian, x: Inputs, units: UnitColumns, memory: int | None) -> Iterator[Projected]:
    """The costly part of a variance, independent of the prior: some data and outputs at a time."""
    plan, x = q.fit.plan, moved(x, q.network.device)
    for piece in pieces(q.network, plan, x, lambda f, part: units(f), plan.outputs, memory):
        yield Projected(piece.f, piece.first, piece.last, piece.group, q.structure.project(piece.forms, piece.group))


def moments(q: Gaussian, x: Inputs, units: UnitColumns, memory: str | int | None = None) -> tuple[Tensor, Tensor]:
    """The mean f(x; θ*) and the covariances (N, T, E, E) of groups of outputs."""
    means, rows, parts = [], [], []
    for each in projections(q, x, units, budget(memory, q.network.device)):
        parts.append(q.precision.contract(each.parts, each.group))
        if each.last:
            means.append(each.f)
            rows.append(torch.cat(parts, 1))
            parts = []
    return torch.cat(means), torch.cat(rows)


def single_outputs(f: Tensor) -> Columns:
    """Each output by itself."""
    return Columns.units(f, 1)


def all_outputs(f: Tensor) -> Columns:
    """All outputs of a datum together."""
    return Columns.units(f, f[0].numel())


def interacting_outputs(likelihood: Likelihood, f: Tensor) -> Columns:
    """The outputs that the likelihood couples, position by position."""
    return Columns.units(f, likelihood.events(f), likelihood)


def functional_variance(q: Any, x: Any, diagonal: bool = False, memory: str | int | None = None) -> Tensor:
    r"""The variance of the linearised function values.

    .. math:: \operatorname{Cov}[f(x_n)] = J(x_n) \Lambda^{-1} J(x_n)^\top

    An array of N × C × P numbers is never built: each layer's factors are contracted with the posterior, some data
    and outputs at a time.

    Args:
        q: a Gaussian posterior, or what ``osc.train`` returned.
        x: inputs (N, …).
        diagonal: only the variance of each output.
        memory: what temporaries may take, in bytes or as "2GB"; by default 256 MiB, or a quarter of what is free.

    Returns:
        (N, C, C) with the outputs flattened to C, or a variance map of the shape of the outputs, (N, *C), where
        ``diagonal``.

    Raises:
        TypeError: the posterior has no linearised function (a point, samples).
        ValueError: the covariances themselves do not fit into the free memory.

    Cost: one forward pass and C backward passes without weight gradients. [immer2021]

    >>> import osculate as osc
    >>> X, Y = torch.randn(30, 2), torch.randn(30, 3)
    >>> q = osc.laplace(torch.nn.Linear(2, 3), osc.likelihoods.Gaussian(), (X, Y), prior=1.0)
    >>> functional_variance(q, X[:5]).shape, functional_variance(q, X[:5], diagonal=True).shape
    (torch.Size([5, 3, 3]), torch.Size([5, 3]))
    """
    q = as_gaussian(q, "functional_variance")
    if diagonal:
        f, variance = moments(q, x, single_outputs, memory)
        return variance.reshape(f.shape)
    size = count(x) * q.fit.plan.outputs**2 * q.mean.itemsize
    if size > (available := free(q.network.device)):
        raise ValueError(
            f"the covariances of {q.fit.plan.outputs:,} outputs for {count(x)} inputs take {readable(size)}, and "
            f"{readable(available)} are free. Ask for the variances alone (diagonal=True), or for fewer inputs."
        )
    return moments(q, x, all_outputs, memory)[1].squeeze(1)


def joint_covariance(q: Gaussian, x: Inputs) -> tuple[Float[Tensor, " K"], Float[Tensor, "K K"]]:
    """Mean and covariance of the function values at all inputs together, K = N·C ordered by input.

    Cost: K × P numbers of one block of parameters at a time, and K² for the answer.
    """
    x = moved(x, q.network.device)
    (piece,) = pieces(q.network, q.fit.plan, x, lambda f, part: all_outputs(f), q.fit.plan.outputs, None)
    return piece.f.reshape(-1), q.precision.covariance_of_rows(piece.forms)


def sampled_linear_functions(q: Gaussian, x: Inputs, samples: int, generator: torch.Generator | None) -> Tensor:
    """f(x; θ*) + J(x)(θ_s − θ*) for S draws: one Jacobian-vector product each, no covariance."""
    x = moved(x, q.network.device)
    at_once = max(1, budget(None, q.network.device) // (4 * q.mean.numel() * q.mean.itemsize))
    result = []
    for start in range(0, samples, at_once):
        draws = q.sample(min(at_once, samples - start), generator)
        f, tangents = jvp(q.network, x, draws - q.mean)
        result.append((f + tangents).detach())
    return torch.cat(result)
