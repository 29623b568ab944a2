"""One pass over the data at a mode: what a Laplace fit and a step of Levenberg–Marquardt share."""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from osculate.batches import require_finite
from osculate.curvature.columns import Hessian, Kind
from osculate.curvature.engine import Observation
from osculate.curvature.plan import make_plan
from osculate.inputs import Inputs, apply, moved, take
from osculate.likelihoods import Likelihood
from osculate.memory import budget, free
from osculate.parameters import Network
from osculate.posteriors import Fit
from osculate.structures import Structure
from osculate.structures.blocks.hessian import for_hessian, without_negative_curvature

#: Data at a time below which the layers of a network are slow.
AT_ONCE = 16
#: Data that a fit keeps, on which a sampled predictive is compared with the mode.
SOME = 64


def observe(
    network: Network, likelihood: Likelihood, kind: Kind, batch: tuple[Inputs, Tensor], memory: str | int | None
) -> Observation:
    """The first batch, with the plan of the network that it shows."""
    x, y = moved(batch[0], network.device), batch[1].to(network.device)
    f = network(x)
    likelihood.check(f, y)
    check_density(likelihood, f, y)
    plan = make_plan(network, x)
    wanted = AT_ONCE * plan.bytes_each(kind.expected(plan.outputs), network.state_dtype.itemsize)
    return Observation(network, plan, likelihood, kind, (x, y), budget(memory, network.device, wanted))


def check_density(likelihood: Likelihood, f: Tensor, y: Tensor) -> None:
    """Refuse a likelihood whose density is not one number for each datum.

    Raises:
        ValueError: it has another shape.
    """
    shape = tuple(likelihood.log_prob(f, y).shape)
    if shape != (len(f),):
        raise ValueError(
            f"{type(likelihood).__name__}.log_prob must return one number for each datum, shape ({len(f)},), and "
            f"returned {shape}: sum over outputs and positions, and not over data."
        )


def require_room(start: Observation, structure: Structure, memory: str | int | None) -> None:
    """Refuse a budget, or a machine, in which not even one datum with one column fits."""
    plan, network = start.plan.by_factors() if structure.by_factors else start.plan, start.network
    plan.require_room(free(network.device) if memory is None else start.memory, network.state_dtype.itemsize)


def fitted(start: Observation, structure: Structure, passes: Iterable[Iterable[tuple[Inputs, Tensor]]]) -> Fit:
    """The curvature and the likelihood's statistics, summed over all batches."""
    network, likelihood = start.network, start.likelihood
    curvature = structure.zero(start.plan.specs, network.space, network.state_dtype, network.device)
    if isinstance(start.kind, Hessian):
        curvature = replace(curvature, blocks=for_hessian(curvature.blocks))
    statistics: dict[str, Tensor] = {}
    size = 0
    for number, batches in enumerate(passes):
        for batch, (x, y) in enumerate(batches):
            here = replace(start, batch=(moved(x, network.device), y.to(network.device)), number=batch)
            f = structure.add(curvature, here, number)
            if number == 0:
                for name, value in likelihood.statistics(f, here.y).items():
                    statistics[name] = statistics.get(name, torch.zeros_like(value)) + value
                size += len(y)
        curvature.finish()
    if isinstance(start.kind, Hessian):
        curvature = replace(curvature, blocks=without_negative_curvature(curvature.blocks))
    for name, tensor in curvature.tensors().items():
        require_finite(tensor, f"the curvature ({name})")
    return Fit(curvature, likelihood, statistics, size, start.plan, network, start.kind.name)


def some(x: Inputs, y: Tensor) -> tuple[Inputs, Tensor]:
    """A copy of a few data, with which nothing else of their batch is kept."""
    some = slice(SOME)
    return apply(torch.clone, take(x, some)), y[some].clone()


def has_labels(likelihood: Likelihood, y: Tensor) -> bool:
    """Whether there is a target that the likelihood does not ignore."""
    counted = likelihood.counted(y)
    return counted is None or bool(counted.any())


def require_labels(found: bool) -> None:
    """Refuse data without a target.

    Raises:
        ValueError: none was found.
    """
    if not found:
        raise ValueError(
            "every target is one that the likelihood ignores: there is nothing to learn from. Check the targets, and "
            "the likelihood's ignore_index."
        )


def require_batch(y: Tensor, num_data: int) -> None:
    """Refuse a batch of nothing, or of no data.

    Raises:
        ValueError: one of them.
    """
    if not len(y) or num_data < 1:
        raise ValueError(
            f"a batch of {len(y)} of {num_data} data has no loss: pass at least one datum, and as num_data the size of "
            "the whole data set."
        )
