"""Draws of the linearised function: Jacobian-vector products, and never a covariance."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.linearisation import Linearisation
from osculate.curvature.products import portions
from osculate.inputs import Inputs, count, moved, take
from osculate.memory import budget
from osculate.posteriors import Gaussian, Mixture, Posterior, as_gaussian


def deviations(
    q: Gaussian, x: Inputs, samples: int, generator: torch.Generator | None, memory: str | int | None = None
) -> Iterator[tuple[Float[Tensor, "N *C"], Float[Tensor, "s N *C"]]]:
    """f(x; θ*) with J(x)(θ_s − θ*) for S draws of the weights, all data and as many draws at a time as the memory has.

    Cost: about three forward passes a draw.
    """
    x, limit = moved(x, q.network.device), budget(memory, q.network.device)
    each = count(x) * q.fit.plan.outputs * q.mean.itemsize
    draws, data = portions(q.network, x, max(1, min(samples, limit // each)), limit)
    step = draws[0].stop
    whole = Linearisation(q.network, x) if len(data) == 1 else None  # its graph serves every draw
    for start in range(0, samples, step):
        v = q.sample(min(step, samples - start), generator) - q.mean
        parts = [whole] if whole else (Linearisation(q.network, take(x, part)) for part in data)
        found = [(at.f, at.jvp(v).detach()) for at in parts]
        yield torch.cat([f for f, _ in found]), torch.cat([tangents for _, tangents in found], 1)


def linear_functions(
    q: Gaussian, x: Inputs, samples: int, generator: torch.Generator | None, memory: str | int | None = None
) -> Iterator[Float[Tensor, "s N *C"]]:
    """f(x; θ*) + J(x)(θ_s − θ*), some draws at a time."""
    for f, tangents in deviations(q, x, samples, generator, memory):
        yield f + tangents


def drawn_functions(
    q: Posterior, x: Inputs, samples: int, generator: torch.Generator | None, memory: str | int | None = None
) -> Float[Tensor, "S N *C"]:
    """All draws of the linearised function of a Gaussian, or of the members of a mixture in turn."""
    if not isinstance(q, Mixture):
        return torch.cat(list(linear_functions(as_gaussian(q, "linearised"), x, samples, generator, memory)))
    shares = zip(q.members, q.shares(samples), strict=True)
    each = [drawn_functions(member, x, share, generator, memory) for member, share in shares if share]
    return torch.stack([part[turn] for turn in range(len(each[0])) for part in each if turn < len(part)])
