"""The evidence at the mode of the linear model: precisions, noise and mode found in turns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from osculate.evidence.problem import Problem, State, effective_parameters
from osculate.evidence.solvers import Search
from osculate.posteriors import Gaussian
from osculate.progress import track

#: A group of which the data determine less than this many parameters, and that they still shrink, has faded.
FADED = 0.01
#: Distance to the mode of the linear model within which one more step is enough: a share of the effective parameters,
#: which are the squared length of θ_* in the metric of the prior.
NEAR = 0.02
#: Newton steps at most where precisions and noise stay.
STEPS = 5
#: The largest step of a log precision, and the largest factor on MacKay's step.
LONGEST, LARGEST_FACTOR = 3.0, 4.0


@dataclass(frozen=True)
class LinearProblem(Problem):
    """The evidence at the mode of the linear model, which goes with the prior: its maximum over θ as well.

    Attributes:
        search: the search for the mode, which goes on from the last x.
    """

    search: Search
    floor: ClassVar[float] = FADED
    without_end: ClassVar[str] = (
        "the linear model explains the data best with these parameters at zero, so that their error bars vanish, while "
        "the network keeps its weights"
    )

    def terms(self, x: Float[Tensor, " D"]) -> tuple[Float[Tensor, " G"], Float[Tensor, " G"], Mapping[str, Tensor]]:
        """γ_g, and ‖θ_g‖² and the statistics one step closer to θ_*."""
        q = self.posterior(x)
        self.search.improve(q)
        squares, statistics = self.squares(self.search.theta), self.search.statistics(q)
        return self.gamma(q), squares, statistics

    def gamma(self, q: Gaussian) -> Float[Tensor, " G"]:
        """γ of each group."""
        return effective_parameters(q)

    def settle(self, x: Float[Tensor, " D"]) -> None:
        """Steps with this prior and noise until one more is enough."""
        q = self.posterior(x)
        for _ in range(STEPS):
            gap = self.search.improve(q)
            if gap <= NEAR * float((q.prior.vector(q.network.space) * self.search.theta.square()).sum()):
                break

    def pull(self, x: Float[Tensor, " D"], gain: Float[Tensor, " D"], cost: Float[Tensor, " D"]) -> Int[Tensor, " D"]:
        """Upwards also those that have faded: their θ_* shrinks with the variance of the prior, for ever."""
        faded = (gain < FADED) & (gain > cost)
        return torch.where(faded, 1, super().pull(x, gain, cost))


@torch.no_grad()
def alternate(problem: LinearProblem, tolerance: float, max_steps: int, progress: bool) -> State:
    """The maximum of the evidence, by alternating steps of θ towards the mode and of x, at most ``max_steps``.

    The steps of x are MacKay's, log γ_g − log δ_g‖θ_g‖², each with a factor of its own that grows where a step leaves
    more than half of its way to be gone, and shrinks where it goes more than half too far.
    """
    x, before, factor = problem.start(), torch.zeros(()), torch.ones(())
    for _ in track(range(max(1, max_steps)), "evidence of the linear model", max_steps, progress):
        here = problem.at(x)
        if here.violation <= tolerance:
            problem.settle(x)
            here = problem.at(x)
            if here.violation <= tolerance:
                break
        step = (here.gain / here.cost).log()
        large = step.abs() > 0.5 * before.abs()
        factor = torch.where(large & (step * before < 0), 0.5 * factor, factor)
        factor = torch.where(large & (step * before > 0), 1.4 * factor, factor).clamp(max=LARGEST_FACTOR)
        before = step
        x = (x + (factor * step).clamp(-LONGEST, LONGEST)).clamp(*problem.bounds)
    return here
