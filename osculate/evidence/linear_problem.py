"""The evidence as a function of precisions and noise at the mode of the linear model."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from osculate.evidence.ascent import Problem
from osculate.evidence.solvers import Search
from osculate.posteriors import Gaussian

#: A group of which the data determine less than this many parameters, and that they still shrink, has faded.
FADED = 0.01
#: Distance to the mode of the linear model within which one more step is enough: a share of the effective parameters,
#: which are the squared length of θ_* in the metric of the prior.
NEAR = 0.02
#: Newton steps for one evaluation, at most.
STEPS = 5


@dataclass(frozen=True)
class LinearProblem(Problem):
    """The evidence at the mode of the linear model, which goes with the prior: its maximum over θ as well.

    Attributes:
        search: for the mode; it goes on from the last x.
        moves: counts the evaluations, and may show them.
    """

    search: Search
    moves: Iterator[int]
    floor: ClassVar[float] = FADED

    def locate(self, q: Gaussian) -> tuple[Float[Tensor, " P"], Mapping[str, Tensor]]:
        next(self.moves)
        for _ in range(STEPS):
            gap = self.search.improve(q)
            if gap <= NEAR * float((q.prior.vector(q.network.space) * self.search.theta.square()).sum()):
                break
        return self.search.theta, self.search.statistics(q)

    def pull(self, x: Float[Tensor, " D"], gain: Float[Tensor, " D"], cost: Float[Tensor, " D"]) -> Int[Tensor, " D"]:
        """Upwards also those that have faded: their θ_* shrinks with the variance of the prior, for ever."""
        faded = (gain < FADED) & (gain > cost)
        return torch.where(faded, 1, super().pull(x, gain, cost))
