r"""Prior precisions and noise scale by the evidence.

As a function of the log precisions a_g = log δ_g and the log noise precision b = log β, at fixed mode and curvature,

.. math:: 2 \log p(D) = N C\, b - e^b \mathrm{SSE} - \sum_g e^{a_g} \lVert\theta_g\rVert^2 + \sum_g n_g a_g
          - \log \Big| e^b G + \sum_g e^{a_g} I_g \Big| + \text{const}

is *concave* (the log determinant of a positive combination is convex in the logs of its weights), with the gradient

.. math:: \gamma_g - \delta_g \lVert\theta_g\rVert^2, \qquad N C - \beta\,\mathrm{SSE} - \textstyle\sum_g \gamma_g .

MacKay's fixed point sets each to zero in turn, and oscillates where most eigenvalues are small or γ comes close to N C.
Here its damped step, half the log of the ratio of the two sides, is the first metric of L-BFGS; the step length is
found on the directional derivative alone, which single precision does not spoil.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.posteriors import Gaussian, as_gaussian
from osculate.registry import choose

#: Precisions, and the factor on the noise precision, are kept within these bounds.
SMALLEST, LARGEST = 1e-8, 1e12
#: Steps that L-BFGS looks back.
MEMORY = 10
#: The largest step, in logs.
LONGEST = 6.0


def maximise_evidence(
    q: Any, mode: str = "fixed_point", tolerance: float = 3e-4, max_steps: int = 200, noise: bool = True
) -> Gaussian:
    r"""The same posterior with prior precisions, and the noise scale where there is one, of largest evidence.

    .. math:: \delta_g = \gamma_g / \lVert\theta_g\rVert^2, \qquad
              \beta = (N C - \textstyle\sum_g \gamma_g) / \mathrm{SSE}

    One precision for each group of the prior (all parameters, each tensor, or each parameter). A noise scale for each
    output keeps its proportions. [mackay1992]

    Args:
        q: a Gaussian posterior; its prior and noise scale are the start.
        mode: "fixed_point", at the network's own mode θ*.
        tolerance: on max_g |γ_g − δ_g‖θ_g‖²| / γ_g, the relative violation of the stationarity condition.
        max_steps: evaluations of γ at most.
        noise: whether the noise scale of a Gaussian likelihood is tuned too.

    Returns:
        A new posterior. ``osc.evidence.effective_parameters`` gives its γ.

    Raises:
        ValueError: an unknown mode.

    Cost: about ten evaluations of γ, each O(P) for diag and kron and O(P³) for full; no pass over the data.

    >>> import osculate as osc
    >>> torch.manual_seed(0)
    <torch._C.Generator object at ...>
    >>> x = torch.randn(50, 3)
    >>> y = x @ torch.ones(3, 1) + 0.1 * torch.randn(50, 1)
    >>> net = torch.nn.Linear(3, 1)
    >>> solution = torch.linalg.lstsq(torch.cat([x, torch.ones(50, 1)], 1), y).solution
    >>> _ = net.weight.data.copy_(solution[:3].T), net.bias.data.copy_(solution[3])
    >>> q = osc.laplace(net, osc.likelihoods.Gaussian(1.0), (x, y), structure="full", prior="evidence")
    >>> round(float(q.likelihood.scale), 2)
    0.11
    """
    q = as_gaussian(q, "maximise_evidence")
    choose("mode of the evidence", mode, ("fixed_point",))
    problem = Problem(q, noise and q.likelihood.has_noise)
    x, budget = problem.start(), max_steps
    here = problem.at(x)
    pairs: list[tuple[Tensor, Tensor]] = []
    while here.violation > tolerance and budget > 0:
        direction = _direction(here, pairs)
        there, used = _step(problem, x, here, direction, budget)
        budget -= used
        move, change = there.x - x, here.gradient - there.gradient
        if float(move @ change) > 1e-12 * float(move.norm() * change.norm()):  # curvature, as concavity has it
            pairs = [*pairs[1 - MEMORY :], (move, change)]
        x, here = there.x, there
    if here.violation > tolerance:
        warnings.warn(
            f"the evidence has not converged after {max_steps} steps: the stationarity condition of the worst of "
            f"{len(x)} precisions is violated by {here.violation:.1e} (relative). Raise max_steps, or use a prior with "
            "fewer precisions.",
            stacklevel=2,
        )
    return problem.posterior(x)


@dataclass(frozen=True)
class State:
    """One evaluation.

    Attributes:
        x: log precisions, then the log factor on the noise precision.
        gain: the sides of the stationarity condition that pull x up: γ, and N C.
        cost: the sides that pull it down: δ‖θ‖², and β SSE + γ.
        violation: the largest relative violation of gain = cost that a bound does not excuse.
    """

    x: Float[Tensor, " D"]
    gain: Float[Tensor, " D"]
    cost: Float[Tensor, " D"]
    violation: float

    @property
    def gradient(self) -> Float[Tensor, " D"]:
        """Of the log evidence."""
        return 0.5 * (self.gain - self.cost)

    def first_step(self, gradient: Tensor) -> Tensor:
        """A gradient divided by the logarithmic mean of both sides: for its own gradient, MacKay's damped step."""
        ratio = self.gain / self.cost
        mean = torch.where((ratio - 1).abs() < 1e-6, self.gain, (self.gain - self.cost) / ratio.log())
        return gradient / mean


def _direction(here: State, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The L-BFGS direction of ascent."""
    direction, weights = here.gradient, []
    for move, change in reversed(pairs):
        weight = (move @ direction) / (move @ change)
        direction = direction - weight * change
        weights.append(weight)
    direction = here.first_step(direction)
    for (move, change), weight in zip(pairs, reversed(weights), strict=True):
        direction = direction + move * (weight - (change @ direction) / (move @ change))
    if float(direction @ here.gradient) <= 0:
        direction = here.first_step(here.gradient)
    return direction / max(1.0, float(direction.abs().max()) / LONGEST)


def _step(problem: "Problem", x: Tensor, here: State, direction: Tensor, budget: int) -> tuple[State, int]:
    """Shorten the step by the secant rule until the slope along it has fallen to less than half its size."""
    length, slope = 1.0, float(here.gradient @ direction)
    for used in range(1, budget + 1):
        there = problem.at((x + length * direction).clamp(log(SMALLEST), log(LARGEST)))
        new = float(there.gradient @ direction)
        if new >= -0.5 * slope or used == 10:
            break
        length *= min(0.7, max(0.1, slope / (slope - new)))
    return there, used


@dataclass(frozen=True)
class Problem:
    """The evidence of a posterior as a function of x."""

    q: Gaussian
    tunes_noise: bool

    def start(self) -> Float[Tensor, " D"]:
        """x at the posterior's own prior and noise."""
        x = self.q.prior.precision.detach().double().log().reshape(-1).cpu()
        x = x.masked_fill(self._squares == 0, log(LARGEST))  # where all are zero there is no maximum
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
    def _squares(self) -> Float[Tensor, " G"]:
        """‖θ_g‖² of each group."""
        theta = self.q.mean.double() * self.q.structure.covered.to(self.q.mean.device)
        return self.q.prior.totals(theta.square(), self.q.network.space).reshape(-1).cpu()

    @torch.no_grad()
    def _determined(self, q: Gaussian) -> Float[Tensor, " G"]:
        """γ of each group."""
        if q.prior.per_tensor(q.network.space) is None:
            return q.prior.totals(q.precision.determined().double(), q.network.space).reshape(-1).cpu()
        gamma = q.precision.determined_by_tensor().cpu()
        return gamma.sum().reshape(1) if q.prior.isotropic else gamma

    def at(self, x: Float[Tensor, " D"]) -> State:
        """Both sides of the stationarity condition."""
        gain = self._determined(self.posterior(x))
        gamma, squares = gain.sum(), self._squares
        cost = squares * x[: len(squares)].exp()
        if self.tunes_noise:
            data, error = self.q.likelihood.noise_balance(self.q.fit.statistics)
            data, error = data / self.q.temperature, error / self.q.temperature * x[-1].exp()
            gain, cost = torch.cat([gain, data.reshape(1)]), torch.cat([cost, (error + gamma).reshape(1)])
        tiny = 1e-300
        stuck = ((x >= log(LARGEST)) & (gain > cost)) | ((x <= log(SMALLEST)) & (gain < cost))
        cost = torch.where(stuck, gain, cost)  # nothing pulls at what has reached its bound
        violation = ((gain - cost).abs() / gain.clamp(min=tiny)).max()
        return State(x, gain.clamp(min=tiny), cost.clamp(min=tiny), float(violation))
