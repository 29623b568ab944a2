"""The Gaussian posterior of a curvature that training has kept, with one pass over the data for what else it needs."""

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.batches import Data, as_batches
from osculate.curvature.columns import GGN
from osculate.curvature.plan import Plan
from osculate.likelihoods import Likelihood
from osculate.parameters import Network
from osculate.posteriors import Fit, Gaussian
from osculate.posteriors.fit import first_rows, observe
from osculate.priors import Prior
from osculate.structures import Curvature, Diag
from osculate.structures.blocks import DiagonalBlock


def diagonal_curvature(empty: Curvature, values: Float[Tensor, " P"]) -> Curvature:
    """A diagonal, given in the order of θ, in the blocks of an empty matrix."""
    blocks = []
    for block in empty.blocks:
        assert isinstance(block, DiagonalBlock)
        blocks.append(replace(block, values=values[block.positions].to(block.values)))
    return replace(empty, blocks=tuple(blocks))


@torch.no_grad()
def kept_gaussian(
    network: Network,
    likelihood: Likelihood,
    prior: Prior,
    data: Data,
    curvature: Callable[[int, Plan], Curvature],
    num_data: int | None = None,
) -> Gaussian:
    """The posterior at the network's parameters with a curvature that was made elsewhere.

    Args:
        network: at the mode, in evaluation mode.
        likelihood: p(y|f), that of the curvature.
        prior: p(θ).
        data: for the plan of the network and the statistics of the likelihood.
        curvature: makes it, from N and the plan.
        num_data: N; the number of data that are there by default. Statistics are then scaled to it.
    """
    statistics: dict[str, Tensor] = {}
    size, first = 0, None
    for x, y in as_batches(data):
        first = first or first_rows(x, y)
        y = y.to(network.device)
        f = network(x)
        likelihood.check(f, y)
        for name, value in likelihood.statistics(f, y).items():
            statistics[name] = statistics.get(name, torch.zeros_like(value)) + value
        size += len(y)
    assert first is not None
    total = num_data or size
    statistics = {name: value * (total / size) for name, value in statistics.items()}
    plan = observe(network, likelihood, GGN(), first, None).plan
    fit = Fit(curvature(total, plan), likelihood, statistics, total, plan, network, GGN.name)
    return Gaussian(network, fit, likelihood, prior, first_data=first, data=data)


def kept_diagonal(network: Network, values: Float[Tensor, " P"]) -> Callable[[int, Plan], Curvature]:
    """For :func:`kept_gaussian`: a diagonal in the order of θ, the sum over all data."""

    def curvature(num_data: int, plan: Plan) -> Curvature:
        empty = Diag().zero(plan.specs, network.space, network.state_dtype, network.device)
        return diagonal_curvature(empty, values)

    return curvature
