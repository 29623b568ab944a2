r"""The evidence as a function of precisions and noise, and its maximisation.

As a function of the log precisions a_g = log δ_g and the log noise precision b = log β, at a fixed θ and curvature,

.. math:: 2 \log p(D) = N C\, b - e^b \mathrm{SSE} - \sum_g e^{a_g} \lVert\theta_g\rVert^2 + \sum_g n_g a_g
          - \log \Big| e^b G + \sum_g e^{a_g} I_g \Big| + \text{const}

is *concave* (the log determinant of a positive combination is convex in the logs of its weights), with the gradient

.. math:: \gamma_g - \delta_g \lVert\theta_g\rVert^2, \qquad N C - \beta\,\mathrm{SSE} - \textstyle\sum_g \gamma_g .
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from osculate.evidence.mode import Search
from osculate.posteriors import Gaussian
from osculate.progress import track

#: Precisions are kept within these bounds, and so is the factor on the noise precision.
SMALLEST, LARGEST = 1e-16, 1e12
SMALLEST_NOISE, LARGEST_NOISE = 1e-24, 1e12
#: Largest effective number of parameters of a group that counts as zero, up to rounding.
UNSEEN = 1e-13
#: Lower bound of divisors.
TINY = 1e-300
#: Largest number of groups that a warning names.
NAMED = 5
#: Number of earlier steps that L-BFGS uses.
MEMORY = 10
#: The largest step of each log precision that L-BFGS takes.
LONGEST = 6.0
#: Effective number of parameters below which a group that still shrinks counts as vanished.
FADED = 0.01
#: Distance to the mode of the linear model within which one more step is enough, as a share of the effective number of
#: parameters, the squared length of θ_* in the metric of the prior.
NEAR = 0.02
#: Largest number of Newton steps at fixed precisions and noise.
STEPS = 5
#: The largest step of a log precision between updates of the mode, and the largest factor on MacKay's step.
LARGEST_STEP, LARGEST_FACTOR = 3.0, 4.0


@dataclass(frozen=True)
class Evaluation:
    """One evaluation.

    Attributes:
        x: Log precisions, then the log factor on the noise precision.
        gain: Terms of the stationarity condition that increase x: γ, and N C.
        cost: Terms that decrease it: δ‖θ‖², and β SSE + γ.
        gradient: The gradient of the log evidence.
        pull: 1 and −1 for components without a maximum inside the bounds, upwards and downwards.
        violation: The largest relative violation of gain = cost among the others.
    """

    x: Float[Tensor, " D"]
    gain: Float[Tensor, " D"]
    cost: Float[Tensor, " D"]
    gradient: Float[Tensor, " D"]
    pull: Int[Tensor, " D"]
    violation: float


@dataclass(frozen=True)
class Problem:
    """The evidence of a posterior as a function of x, at the network's own parameters.

    Attributes:
        q: The posterior, whose prior and noise are the origin of x.
        tunes_noise: True if x holds the noise.
    """

    q: Gaussian
    tunes_noise: bool
    #: Meaning of a precision that grows without bound.
    without_end: ClassVar[str] = (
        "the data are explained best with these parameters at the mean of their prior, where they are held"
    )
    #: Effective number of parameters below which the stationarity condition of a group is not relative to it.
    floor: ClassVar[float] = 1e-3

    def start(self) -> Float[Tensor, " D"]:
        """x at the posterior's own prior and noise."""
        x = self.q.prior.precision.detach().double().log().reshape(-1).cpu()
        return torch.cat([x, x.new_zeros(1)]) if self.tunes_noise else x

    def posterior(self, x: Float[Tensor, " D"]) -> Gaussian:
        """The posterior at x."""
        precision = self.q.prior.precision
        logs = x[:-1] if self.tunes_noise else x
        prior = self.q.prior.with_precision(logs.exp().to(precision).reshape(precision.shape))
        if not self.tunes_noise:
            return self.q.replace(prior=prior)
        return self.q.replace(prior=prior, likelihood=self.q.likelihood.times((-0.5 * x[-1]).exp().to(precision)))

    @cached_property
    def scale(self) -> Float[Tensor, ""] | float:
        """The factor of the curvature at the posterior's own noise scale."""
        return self.q.likelihood.curvature_scale(self.q.fit.likelihood) / self.q.temperature

    @cached_property
    def owners(self) -> Int[Tensor, " T"] | None:
        """The index of the group of each parameter tensor; None where precisions vary within tensors."""
        prior, space = self.q.prior, self.q.network.space
        if prior.per_tensor(space) is None:
            return None
        index = {name: n for n, names in enumerate(prior.members(space).values()) for name in names}
        return torch.tensor([index[name] for name in space.names])

    def terms(self, x: Float[Tensor, " D"]) -> tuple[Float[Tensor, " G"], Float[Tensor, " G"], Mapping[str, Tensor]]:
        """γ_g, ‖θ_g‖² and the statistics of the likelihood: here θ is the network's own, and γ alone follows from x."""
        q = self.q
        if self.owners is None:
            return effective_parameters(self.posterior(x)), self.own_squares, q.fit.statistics
        scale = self.scale * x[-1].exp().to(q.prior.precision) if self.tunes_noise else self.scale
        delta = x[self.owners].exp().to(q.prior.precision)
        precision = q.fit.curvature.precision_by_tensor(scale, delta, q.prior.isotropic)
        by_tensor = precision.effective_parameters_by_tensor().cpu()
        gamma = torch.zeros_like(self.own_squares).index_add(0, self.owners, by_tensor)
        return gamma, self.own_squares, q.fit.statistics

    @cached_property
    def own_squares(self) -> Float[Tensor, " G"]:
        """‖θ_g‖² of the network's own parameters."""
        return self.squares(self.q.mean)

    def squares(self, theta: Float[Tensor, " P"]) -> Float[Tensor, " G"]:
        """‖θ_g − μ_g‖² of each group, without parameters that the data do not see."""
        return self.q.prior.totals(self.q.seen_apart(theta).double().square_(), self.q.network.space).reshape(-1).cpu()

    @cached_property
    def unseen(self) -> Bool[Tensor, " D"]:
        """True for groups of which the data see no parameter: the evidence does not depend on their precision."""
        seen = self.q.seen.to(self.q.mean.device)
        found = self.q.prior.totals(seen.double(), self.q.network.space).reshape(-1).cpu() == 0
        return torch.cat([found, found.new_zeros(1)]) if self.tunes_noise else found

    @cached_property
    def bounds(self) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
        """The smallest and the largest x."""
        start = self.start()
        low, high = torch.full_like(start, log(SMALLEST)), torch.full_like(start, log(LARGEST))
        if self.tunes_noise:
            low[-1], high[-1] = log(SMALLEST_NOISE), log(LARGEST_NOISE)
        return low, high

    def pull(self, x: Float[Tensor, " D"], gain: Float[Tensor, " D"], cost: Float[Tensor, " D"]) -> Int[Tensor, " D"]:
        """1 and −1 for components without a maximum inside the bounds, upwards and downwards; 0 for the others."""
        low, high = self.bounds
        found = ((x >= high) & (gain > cost)).int() - (((x <= low) | (gain <= UNSEEN)) & (gain < cost)).int()
        return found.masked_fill(self.unseen, -1)

    def at(self, x: Float[Tensor, " D"]) -> Evaluation:
        """Both sides of the stationarity condition."""
        gain, squares, statistics = self.terms(x)
        gamma = gain.sum()
        cost = squares * x[: len(squares)].exp()
        if self.tunes_noise:
            data, error = self.q.likelihood.noise_balance(statistics)
            data, error = data / self.q.temperature, error / self.q.temperature * x[-1].exp()
            gain, cost = torch.cat([gain, data.reshape(1)]), torch.cat([cost, (error + gamma).reshape(1)])
        pull = self.pull(x, gain, cost)
        cost = torch.where(pull != 0, gain, cost)  # components without a maximum keep their value
        violation = ((gain - cost).abs() / gain.clamp(min=self.floor)).max()
        gain, cost = gain.clamp(min=TINY), cost.clamp(min=TINY)
        return Evaluation(x, gain, cost, 0.5 * (gain - cost), pull, float(violation))


@dataclass(frozen=True)
class LinearProblem(Problem):
    """The evidence at the mode of the linear model for each prior: maximised over θ as well.

    Attributes:
        search: The search for the mode, which continues from the last x.
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
            apart = q.prior.apart(self.search.theta)
            if gap <= NEAR * float((q.prior.vector(q.network.space) * apart.square()).sum()):
                break

    def pull(self, x: Float[Tensor, " D"], gain: Float[Tensor, " D"], cost: Float[Tensor, " D"]) -> Int[Tensor, " D"]:
        """Upwards also groups that have vanished: their θ_* shrinks without bound with the variance of the prior."""
        faded = (gain < FADED) & (gain > cost)
        return torch.where(faded & ~self.unseen, 1, super().pull(x, gain, cost))


@torch.no_grad()
def effective_parameters(q: Gaussian) -> Float[Tensor, " G"]:
    """γ of each group of the prior, in double precision."""
    prior, space = q.prior, q.network.space
    if prior.per_tensor(space) is None:
        return prior.totals(q.precision.effective_parameters().double(), space).reshape(-1).cpu()
    return prior.pooled(q.precision.effective_parameters_by_tensor().cpu(), space).reshape(-1)


def ascend(problem: Problem, x: Float[Tensor, " D"], tolerance: float, max_steps: int) -> Evaluation:
    r"""The maximum at a fixed θ, where the evidence is concave, by L-BFGS; or where ``max_steps`` evaluations lead.

    MacKay's fixed point sets each component of the gradient to zero in turn, and oscillates where most eigenvalues are
    small or γ comes close to N C. Here its damped step, half the log of the ratio of the two sides, is the first metric
    of L-BFGS; the step length is found on the directional derivative alone, which single precision does not spoil.
    """
    budget = max_steps
    here = problem.at(x)
    pairs: list[tuple[Tensor, Tensor]] = []
    while here.violation > tolerance and budget > 0:
        direction = _direction(here, pairs)
        length, slope = 1.0, float(here.gradient @ direction)
        for used in range(1, budget + 1):  # shortened by the secant rule until the slope along it is less than half
            there = problem.at((here.x + length * direction).clamp(*problem.bounds))
            new = float(there.gradient @ direction)
            if new >= -0.5 * slope or used == 10:
                break
            length *= min(0.7, max(0.1, slope / (slope - new)))
        budget -= used
        move, change = there.x - here.x, here.gradient - there.gradient
        if float(move @ change) > 1e-12 * float(
            move.norm() * change.norm()
        ):  # positive curvature, as for a concave function
            pairs = [*pairs[1 - MEMORY :], (move, change)]
        here = there
    return here


def _direction(here: Evaluation, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The L-BFGS direction of ascent; its first metric is the logarithmic mean of both sides, MacKay's damped step."""
    ratio = here.gain / here.cost
    mean = torch.where((ratio - 1).abs() < 1e-6, here.gain, (here.gain - here.cost) / ratio.log())
    direction, weights = here.gradient, []
    for move, change in reversed(pairs):
        weight = (move @ direction) / (move @ change)
        direction = direction - weight * change
        weights.append(weight)
    direction = direction / mean
    for (move, change), weight in zip(pairs, reversed(weights), strict=True):
        direction = direction + move * (weight - (change @ direction) / (move @ change))
    direction = direction.clamp(-LONGEST, LONGEST)  # per component: one without a maximum does not slow down the others
    if float(direction @ here.gradient) <= 0:
        direction = (here.gradient / mean).clamp(-LONGEST, LONGEST)
    return direction


@torch.no_grad()
def alternate(problem: LinearProblem, tolerance: float, max_steps: int, progress: bool) -> Evaluation:
    """The maximum of the evidence, by alternating steps of θ towards the mode and of x, at most ``max_steps``.

    The steps of x are MacKay's, log γ_g − log δ_g‖θ_g‖², each with a separate factor that grows if more than half of
    the distance remains after a step, and shrinks after an overshoot of more than half.
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
        x = (x + (factor * step).clamp(-LARGEST_STEP, LARGEST_STEP)).clamp(*problem.bounds)
    return here


def posterior_at_end(problem: Problem, end: Evaluation) -> Gaussian:
    """The posterior at the end of a search, with the largest precision where the evidence has no maximum upwards."""
    at_bound, groups = end.pull > 0, len(end.x) - problem.tunes_noise
    at_bound[groups:] = False
    return problem.posterior(end.x.masked_fill(at_bound, log(LARGEST)))


def finish(problem: Problem, end: Evaluation, tolerance: float, max_steps: int) -> Gaussian:
    """The posterior at the end of a search, with warnings if it did not converge or there is no maximum."""
    if end.violation > tolerance:
        warnings.warn(
            f"the evidence has not converged after {max_steps} steps: the stationarity condition of the worst of "
            f"{len(end.x)} precisions is violated by {end.violation:.1e} (relative). Raise max_steps, or use a prior "
            "with fewer precisions.",
            stacklevel=4,
        )
    if bool(end.pull.any()):
        _warn_of_bounds(problem, end)
    return posterior_at_end(problem, end)


def _warn_of_bounds(problem: Problem, end: Evaluation) -> None:
    """Warn of precisions without a maximum, except for parameters that are zero, such as some biases."""
    q, groups = problem.q, problem.q.prior.members(problem.q.network.space)
    silent = {name for name, p in q.network.parameters.items() if p.ndim < 2 and not bool(p.any())}
    pull = dict(zip(groups, end.pull.tolist(), strict=False))
    up = [label for label, way in pull.items() if way > 0 and not silent >= set(groups[label])]
    down = [label for label, way in pull.items() if way < 0]
    unseen = [label for label, x in zip(groups, end.x.tolist(), strict=False) if label in down and x > log(SMALLEST)]
    down = [label for label in down if label not in unseen]
    parts = []
    if up:
        parts.append(
            f"grows with the prior precision without end for {listed(up)}: {problem.without_end}; they get the "
            f"precision {LARGEST:.0e}"
        )
    if unseen:
        parts.append(
            f"does not depend on the prior precision for {listed(unseen)}: the data say nothing about these "
            "parameters (no output depends on them, or none has a derivative by them), and they keep the precision "
            "that they had; freeze them, or set it"
        )
    if down:
        parts.append(
            f"falls with the prior precision down to the bound of {SMALLEST:.0e} for {listed(down)}: these "
            "parameters are that large; standardise inputs and targets"
        )
    if problem.tunes_noise and int(end.pull[-1]):
        parts.append(
            "grows without end as the noise scale falls: the outputs equal the targets; fix the scale (noise=False)"
            if int(end.pull[-1]) > 0
            else "grows with the noise scale up to its bound: standardise the targets, or start with a larger scale"
        )
    if parts:
        warnings.warn(f"the evidence has no maximum inside of its bounds: it {'; it '.join(parts)}.", stacklevel=5)


def listed(labels: list[str]) -> str:
    """The first of these labels, and how many more there are."""
    more = len(labels) - NAMED
    return ", ".join(labels[:NAMED]) + (f" and {more} more" if more > 0 else "")
