"""Prior precision and temperature on held-out data, with every pass over the network done once."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite, log10
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution
from torch.utils._pytree import tree_leaves

from osculate.batches import Data, as_batches
from osculate.inputs import Inputs
from osculate.likelihoods import Link
from osculate.memory import budget
from osculate.posteriors import Gaussian, as_gaussian
from osculate.posteriors.linearised import (
    Projected,
    interacting_outputs,
    projections,
    single_outputs,
)
from osculate.predictive.losses import brier, negative_log_likelihood
from osculate.predictive.predict import choose_link
from osculate.progress import track
from osculate.registry import lookup

#: A loss of each datum, lower is better.
Loss = Callable[[Distribution, Tensor], Float[Tensor, " N"]]
#: Projected validation data are kept up to this many times the memory of a pass, else computed anew each time.
KEPT = 8
#: The coarse grid: decades on the prior precision, and on the temperature.
DECADES = (-2.0, -1.0, 0.0, 1.0, 2.0, 4.0)
TEMPERATURES = (-3.0, -2.5, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5)
#: Refinement stops at steps of this many decades, and that far out.
FINEST, WIDEST = 0.05, 6.0


#: Decades on the prior precision, and on the temperature.
Point = tuple[float, float]


#: Losses by name; they take predictive, targets, and which of the targets are counted.
METRICS: dict[str, Callable[[Distribution, Tensor, Tensor | None], Tensor]] = {
    "nll": negative_log_likelihood,
    "brier": brier,
}


def tune(
    q: Any,
    validation: Data,
    metric: str | Loss = "nll",
    *,
    link: str | Link | None = None,
    temperature: bool = True,
    caution: float = 1.0,
    progress: bool = False,
) -> Gaussian:
    r"""The same posterior with prior precision and temperature chosen on held-out data.

    All precisions of the prior are multiplied by one factor s, and the likelihood is tempered by T, so that
    Λ = G/T + s diag(δ). A grid is followed by a compass search down to 0.05 decades. Of all candidates whose loss is
    within ``caution`` standard errors of the best (of the paired difference over the data), the one with the largest
    functional variance is taken: held-out data from the training distribution hardly tell how unsure to be elsewhere,
    and between settings that they cannot tell apart the more unsure one is the safer. The network is passed over the
    validation data once: only the contraction with the posterior is repeated for each candidate.

    Args:
        q: A Gaussian posterior, or what ``osc.train`` returned.
        validation: Held-out data, in any form that ``osc.laplace`` accepts.
        metric: "nll", "brier" (of a datum: summed over its targets, without those that the likelihood ignores), or a
            function of (predictive, y) that gives one loss for each datum, lower is better.
        link: Method of integrating probabilities; by default that of ``osc.predict``.
        temperature: Tune T too.
        caution: Standard errors that may be given away for more uncertainty; 0 takes the best loss.
        progress: Show a progress bar.

    Returns:
        A new posterior. A value at the edge of the grid (no uncertainty helps, or any amount does) is kept, as the
        data's answer.

    Raises:
        TypeError: ``q`` is not a Gaussian posterior.
        ValueError: an unknown metric, data that do not fit or hold no target, or no candidate with a finite loss.

    Cost: one predictive pass over the validation data, and about seventy contractions.

    >>> import osculate as osc
    >>> X, Y = torch.randn(40, 2), torch.randint(3, (40,))
    >>> q = osc.laplace(torch.nn.Linear(2, 3), osc.likelihoods.Categorical(), (X[:20], Y[:20]), prior=1.0)
    >>> osc.tune(q, (X[20:], Y[20:])).prior.precision.ndim
    0
    """
    q = as_gaussian(q, "tune")
    if isinstance(metric, str):
        by_name = lookup("metric", metric, METRICS)
        loss: Loss = lambda predictive, y: by_name(predictive, y, q.likelihood.counted(y))  # noqa: E731
    else:
        loss = metric
    chosen = choose_link(q.likelihood, link)
    held_out = _Validation(q, validation, chosen, progress)
    search = _Search(lambda point: held_out.score(_at(q, *point), loss))
    temperatures = TEMPERATURES if temperature else (log10(float(q.temperature)),)
    grid = [(decade, t) for t in temperatures for decade in DECADES]
    best = min(track(grid, "tuning", len(grid), progress), key=search)
    if not isfinite(search(best)):
        why = f" ({held_out.trouble})" if held_out.trouble else ""
        raise ValueError(
            f"no candidate gave a finite loss on the validation data{why}: check its targets and the metric."
        )
    best = search.refine(best, (0, 1) if temperature else (0,))
    _warn_of_edges(best)
    # a prior that the data cannot see may be made ever wider: caution moves the temperature where it is tuned
    return _at(q, *search.cautious(best, caution, (1,) if temperature else (0,)))


def _warn_of_edges(best: Point) -> None:
    if min(best[0], -best[1]) <= -3.0:
        warnings.warn(
            "on these held-out data any uncertainty, however large, is better than less: the network explains them "
            "worse than ignorance does. Train it longer, or look at the data.",
            stacklevel=3,
        )
    if max(best[0], -best[1]) >= 4.0:
        warnings.warn(
            "on these held-out data no uncertainty is best: the tuned posterior predicts nearly as the network alone. "
            "Held-out data of another kind, or the prior of the evidence, keep it.",
            stacklevel=3,
        )


def _at(q: Gaussian, decades: float, log_temperature: float) -> Gaussian:
    prior = q.prior.with_precision(q.prior.precision * 10**decades)
    return q.replace(prior=prior, temperature=10**log_temperature)


@dataclass(frozen=True)
class _Score:
    """The loss of each datum, and the mean functional variance."""

    losses: Float[Tensor, " N"]
    spread: float

    @property
    def mean(self) -> float:
        value = float(self.losses.mean())
        return value if isfinite(value) else inf


class _Search:
    """A scored function of a point that remembers its values, and ways to choose among the points."""

    def __init__(self, score: Callable[[Point], _Score]) -> None:
        self._score = score
        self._seen: dict[Point, _Score] = {}

    def __call__(self, point: Point) -> float:
        """The mean loss."""
        if point not in self._seen:
            self._seen[point] = self._score(point)
        return self._seen[point].mean

    def refine(self, start: Point, axes: tuple[int, ...], value: Callable[[Point], float] | None = None) -> Point:
        """Step along these axes while it lowers the value (the mean loss), with steps halved down to FINEST decades."""
        value, best, step = value or self, start, 0.5
        while step >= FINEST:
            moves = [(step, 0.0), (0.0, step)]
            around = [(best[0] + s * moves[a][0], best[1] + s * moves[a][1]) for a in axes for s in (-1, 1)]
            nearest = min(around, key=value)
            if value(nearest) < value(best) and max(map(abs, nearest)) <= WIDEST:
                best = nearest
            else:
                step /= 2
        return best

    def cautious(self, best: Point, caution: float, axes: tuple[int, ...]) -> Point:
        """The point with the largest functional variance among those not clearly worse than the best."""

        def tightness(point: Point) -> float:
            mean, score = self(point), self._seen[point]
            if not isfinite(mean):
                return inf
            difference = score.losses - self._seen[best].losses
            error = float(difference.std()) / len(difference) ** 0.5 if len(difference) > 1 else 0.0
            return -score.spread if float(difference.mean()) <= caution * error else inf

        widest = min(list(self._seen), key=tightness)
        return self.refine(widest, axes, tightness)


@dataclass
class _Validation:
    """Held-out data with what the predictive needs of them, independent of the prior."""

    q: Gaussian
    data: Data
    link: Link
    progress: bool

    def __post_init__(self) -> None:
        likelihood = self.q.likelihood
        self.trouble = ""  # why the last candidate had no loss
        self._coupled = likelihood.needs_covariance(self.link)
        self._units = partial(interacting_outputs, likelihood) if self._coupled else single_outputs
        self._memory = budget(None, self.q.network.device)
        self._kept: list[tuple[Projected, Tensor]] | None = []
        self._batches = list(as_batches(self.data))  # the loader is read once: it may shuffle, or end
        size, labelled = 0, False
        for part in self._project(track(self._batches, "validation pass", len(self._batches), self.progress)):
            counted = likelihood.counted(part[1])
            labelled = labelled or counted is None or bool(counted.any())
            leaves = tree_leaves([part[0].f, part[0].mean, part[0].parts])
            size += sum(leaf.numel() * leaf.itemsize for leaf in leaves if isinstance(leaf, Tensor))
            if size > KEPT * self._memory:
                self._kept = None
            elif self._kept is not None:
                self._kept.append(part)
        if not labelled:
            raise ValueError("every validation target is one that the likelihood ignores: there is nothing to score.")

    def _project(self, batches: Iterable[tuple[Inputs, Tensor]]) -> Iterator[tuple[Projected, Tensor]]:
        for x, y in batches:
            start = 0
            for each in projections(self.q, x, self._units, self._memory):
                targets = y[start : start + len(each.f)].to(each.f.device)
                if each.first:
                    self.q.likelihood.check(each.f, targets)
                if each.last:
                    start += len(each.f)
                yield replace(each, parts=list(each.parts)), targets

    def score(self, q: Gaussian, loss: Loss) -> _Score:
        """The losses of a posterior that shares everything but prior and temperature."""
        losses, variances = [], []
        parts: list[Tensor] = []
        for each, y in self._kept if self._kept is not None else self._project(self._batches):
            try:
                parts.append(q.precision.contract(each.parts, each.group))
                if each.last:
                    covariance, parts = torch.cat(parts, 1), []
                    variances.append(covariance.diagonal(dim1=-2, dim2=-1).reshape(len(y), -1).mean(-1))
                    covariance = covariance if self._coupled else covariance.reshape(each.f.shape)
                    losses.append(loss(q.likelihood.marginal(each.mean, covariance, self.link), y))
            except ValueError as error:  # a precision that cannot be factorised, or probabilities that are not finite
                self.trouble = str(error)
                return _Score(torch.full((1,), inf), 0.0)
        return _Score(torch.cat(losses).detach().double(), float(torch.cat(variances).mean()))
