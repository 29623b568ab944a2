"""The linearised network: f(x; θ) ≈ f(x; θ*) + J(x)(θ − θ*), a Gaussian over functions, exactly."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.columns import Columns
from osculate.curvature.engine import are_many, pieces
from osculate.curvature.forms import AnyForm
from osculate.curvature.linearisation import Linearisation
from osculate.curvature.plan import Plan
from osculate.curvature.products import portions
from osculate.inputs import Inputs, count, moved, take
from osculate.likelihoods import Likelihood
from osculate.memory import budget, require, sparing
from osculate.posteriors import Gaussian, Mixture, Posterior, as_gaussian

#: A function from outputs (N, *C) to one column for each of them, in groups that belong together.
UnitColumns: TypeAlias = Callable[[Tensor], Columns]


@dataclass(frozen=True)
class Projected:
    """Projections of some outputs of some data, from which their variance follows for any prior.

    Attributes:
        f: Outputs (n, *C) of the network for these data.
        mean: The mean of the posterior's function there.
        first: True for the first outputs of these data.
        last: True for the last outputs of these data.
        group: Number of outputs that belong together.
        parts: Projections for each block, computed on demand.
    """

    f: Tensor
    mean: Tensor
    first: bool
    last: bool
    group: int
    parts: Iterable[Any]


def projections(
    q: Gaussian, x: Inputs, units: UnitColumns, memory: str | int | None, outputs: int | None = None
) -> Iterator[Projected]:
    """The costly part of a variance, independent of the prior, in chunks of data and outputs."""
    network, curvature = q.network, q.precision.curvature
    x, limit = moved(x, network.device), budget(memory, network.device)
    plan = q.fit.plan.for_structure(row_size=curvature.row_size)
    start = 0
    for piece in pieces(network, plan, x, lambda f, part: units(f), outputs or plan.outputs, limit):
        f = piece.f
        if piece.first:
            if q.offset is not None and piece.last and piece.identity:
                shift = rows_times(plan, piece.forms, q.offset)
                mean = f if shift is None else f + shift.T.reshape(f.shape)
            else:
                mean = mean_function(q, take(x, slice(start, start + len(f))), f, limit)
            start += len(f)
        projected = Projected(
            f, mean, piece.first, piece.last, piece.group, curvature.project(piece.forms, piece.group)
        )
        del piece  # with what is projected, its forms are freed before the next ones are made
        yield projected
        del projected


def moments(
    q: Gaussian, x: Inputs, units: UnitColumns, memory: str | int | None = None, outputs: int | None = None
) -> tuple[Tensor, Tensor]:
    """The mean f(x; θ*) + J(x)(m − θ*) and the covariances (N, T, E, E) of groups of outputs.

    Args:
        q: The posterior.
        x: Inputs.
        units: The columns.
        memory: Bytes that the call may take.
        outputs: Number of outputs of a datum, if it differs from that in training.
    """
    precision, parts, start = q.precision, [], 0
    found: list[Tensor] = []
    with sparing(memory):
        for each in projections(q, x, units, memory, outputs):
            parts.append(precision.contract(each.parts, each.group))
            if each.last:
                values = each.mean, torch.cat(parts, 1)
                found = found or [part.new_empty(count(x), *part.shape[1:]) for part in values]
                stop = start + len(each.mean)
                for whole, part in zip(found, values, strict=True):
                    whole[start:stop] = part
                start, parts = stop, []
            del each
    mean, covariance = found
    return mean, covariance


def mean_function(q: Gaussian, x: Inputs, f: Tensor, memory: int | None = None) -> Tensor:
    """f(x; θ*) + J(x)(m − θ*), from the outputs f(x; θ*); in parts that fit into this many bytes."""
    if q.offset is None:
        return f
    _, data = portions(q.network, x, 1, budget(None, q.network.device) if memory is None else memory)
    parts = [Linearisation(q.network, take(moved(x, q.network.device), part)) for part in data]
    return f + torch.cat([at.jvp(q.offset.unsqueeze(0))[0] for at in parts])


def rows_times(plan: Plan, forms: Mapping[int, AnyForm], v: Float[Tensor, " P"]) -> Float[Tensor, "V N"] | None:
    """The products of the rows of all blocks with a vector; None where there are no rows.

    Args:
        plan: The plan of the network.
        forms: The form of each block.
        v: The vector.
    """
    parts = [form.times(v[plan.specs[n].positions.to(v.device)]) for n, form in forms.items()]
    return reduce(torch.add, parts) if parts else None


def has_many_columns(q: Posterior, data: int) -> bool:
    """True if a column for each output of these data would take very long, so that draws have to stand for them.

    A last layer alone has its columns in closed form.
    """
    members = [q] if isinstance(q, Gaussian) else [m for m in getattr(q, "members", ()) if isinstance(m, Gaussian)]
    plans = [(member.fit.plan, member.network.device) for member in members]
    return any(len(plan.blocks) > 1 and are_many(plan.outputs, data, plan, device) for plan, device in plans)


def require_room(q: Gaussian, size: int, what: str, way_out: str) -> None:
    """Raise ValueError, with sizes, if a result of this size does not fit."""
    require(size * q.mean.itemsize, q.network.device, what, way_out)


def single_outputs(f: Tensor) -> Columns:
    """Each output separately."""
    return Columns.units(f, 1)


def all_outputs(f: Tensor) -> Columns:
    """All outputs of a datum together."""
    return Columns.units(f, f[0].numel())


def interacting_outputs(likelihood: Likelihood, f: Tensor) -> Columns:
    """The outputs that the likelihood couples, position by position."""
    return Columns.units(f, likelihood.events(f), likelihood)


def joint_covariance(q: Gaussian, x: Inputs) -> tuple[Float[Tensor, " K"], Float[Tensor, "K K"]]:
    """Mean and covariance of the function values at all inputs together, K = N·C ordered by input.

    The covariance is in double precision, so that it is positive semi-definite up to a rounding far below the values.

    Cost: K × P numbers of one block of parameters at a time, and K² for the answer.
    """
    x = moved(x, q.network.device)
    (piece,) = pieces(q.network, q.fit.plan, x, lambda f, part: all_outputs(f), q.fit.plan.outputs, None)
    return mean_function(q, x, piece.f).reshape(-1), q.precision.covariance_of_rows(piece.forms)


def deviations(
    q: Gaussian, x: Inputs, samples: int, generator: torch.Generator | None, memory: str | int | None = None
) -> Iterator[tuple[Float[Tensor, "N *C"], Float[Tensor, "s N *C"]]]:
    """f(x; θ*) with J(x)(θ_s − θ*) for S draws of the weights, on all data, in chunks of draws that fit into memory.

    Cost: about three forward passes a draw.
    """
    x, limit = moved(x, q.network.device), budget(memory, q.network.device)
    draws, data = portions(q.network, x, samples, limit, collected=True)
    whole = Linearisation(q.network, x) if len(data) == 1 else None  # its graph serves every draw
    for some in draws:
        v = q.sample(some.stop - some.start, generator) - q.mean
        found = []
        for part in data:
            at = whole or Linearisation(q.network, take(x, part))
            found.append((at.f, at.jvp(v)))
            del at  # and its graph, before the next one is made
        yield torch.cat([f for f, _ in found]), torch.cat([tangents for _, tangents in found], 1)


def linear_functions(
    q: Gaussian, x: Inputs, samples: int, generator: torch.Generator | None, memory: str | int | None = None
) -> Iterator[Float[Tensor, "s N *C"]]:
    """f(x; θ*) + J(x)(θ_s − θ*), in chunks of draws."""
    mean: Tensor | None = None
    for f, tangents in deviations(q, x, samples, generator, memory):
        mean = mean_function(q, x, f, budget(memory, q.network.device)) if mean is None else mean
        yield mean + tangents


def drawn_functions(
    q: Posterior, x: Inputs, samples: int, generator: torch.Generator | None, memory: str | int | None = None
) -> Float[Tensor, "S N *C"]:
    """All draws of the linearised function of a Gaussian, or of the members of a mixture in turn."""
    if not isinstance(q, Mixture):
        return torch.cat(list(linear_functions(as_gaussian(q, "linearised"), x, samples, generator, memory)))
    each = [drawn_functions(member, x, share, generator, memory) for member, share in q.shares(samples) if share]
    return torch.stack([part[turn] for turn in range(len(each[0])) for part in each if turn < len(part)])
