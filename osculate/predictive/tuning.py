"""Prior precision and temperature tuned on held-out data, with a single pass over the network."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite, log10
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Categorical as CategoricalDistribution, Distribution, Normal
from torch.utils._pytree import tree_leaves

from osculate.batches import Data, as_batches
from osculate.inputs import Inputs
from osculate.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian as GaussianNoise,
    HeteroscedasticGaussian,
    Likelihood,
    Link,
    Poisson,
)
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
#: Projected validation data are kept up to this multiple of the memory of a pass, and recomputed beyond it.
KEPT = 8
#: The coarse grid: decades on the prior precision, and on the temperature.
DECADES = (-2.0, -1.0, 0.0, 1.0, 2.0, 4.0)
TEMPERATURES = (-3.0, -2.5, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5)
#: Smallest step of the refinement and largest distance from the start, in decades.
FINEST, WIDEST = 0.05, 6.0
#: Smallest difference of losses that counts, in standard errors and as a share of the loss.
ERRORS, ROUNDING = 2.0, 1e-4


#: Decades on the prior precision, and on the temperature.
Point = tuple[float, float]


#: Losses by name; they take predictive, targets, and which of the targets are counted.
METRICS: dict[str, Callable[[Distribution, Tensor, Tensor | None], Tensor]] = {
    "nll": negative_log_likelihood,
    "brier": brier,
}


@dataclass(frozen=True)
class HeldOutLoss:
    """A mean loss on held-out data, beside that of the network alone.

    Args:
        mean: Mean over the data.
        difference: The same minus that of the network alone.
        standard_error: Standard error of the difference, paired over the data; infinite for a single datum.
    """

    mean: float
    difference: float
    standard_error: float

    @classmethod
    def beside(cls, losses: Float[Tensor, " N"], others: Float[Tensor, " N"]) -> "HeldOutLoss":
        """The mean of losses, with its distance to that of others of the same data."""
        apart = losses - others
        error = float(apart.std()) / len(apart) ** 0.5 if len(apart) > 1 else inf
        mean = float(losses.mean())
        return cls(mean if isfinite(mean) else inf, float(apart.mean()), error)

    @property
    def verdict(self) -> int:
        """1 if the loss is lower than that of the network by more than two standard errors, −1 if higher, else 0.

        Differences below a ten-thousandth of the loss count as zero.
        """
        if not abs(self.difference) > ERRORS * self.standard_error + ROUNDING * abs(self.mean):
            return 0
        return -1 if self.difference > 0 else 1

    @property
    def words(self) -> str:
        """Size of the difference, with its standard error."""
        return f"{abs(self.difference):.3f} ± {self.standard_error:.3f} per datum"


@dataclass(frozen=True)
class Tuning:
    """The losses on held-out data by which ``osc.tune`` chose; prints as a table with a sentence.

    Ignorance is the best prediction that is the same for every input: classes with their frequencies in these data,
    over all positions together and with one added to each count; a Bernoulli output with its own frequency, with one
    added to both counts; a count with the mean of its output; real values with the mean of each output, and a normal
    noise of the root mean square deviation: one for all outputs where the likelihood has one noise scale, else one for
    each. It is not defined for other likelihoods, for outputs of several shapes, or for targets without spread.

    Args:
        metric: Name of the loss, "loss" for a function.
        num_data: Number of held-out data.
        network: Mean loss of the network alone, p(y|f(x; θ*)).
        ignorance: Loss of ignorance.
        start: Loss of the posterior before tuning.
        choice: Loss of the tuned posterior.
    """

    metric: str
    num_data: int
    network: float
    ignorance: HeldOutLoss | None
    start: HeldOutLoss
    choice: HeldOutLoss

    @property
    def sentence(self) -> str:
        """A sentence about the losses."""
        how = {1: "better than", 0: "like", -1: "worse than"}[self.choice.verdict]
        found = f"The tuned posterior predicts {how} its network alone: the difference is {self.choice.words}."
        if self.ignorance is not None and self.ignorance.verdict > 0:
            found += f" The network alone predicts worse than ignorance, by {self.ignorance.words}."
        return found

    def __str__(self) -> str:
        rows = [("", self.metric, "to the network", ""), ("network", f"{self.network:.3f}", "", "")]
        for name, loss in (("ignorance", self.ignorance), ("start", self.start), ("tuned", self.choice)):
            if loss is not None:
                rows.append((name, f"{loss.mean:.3f}", f"{loss.difference:+.3f}", f"± {loss.standard_error:.3f}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        return "\n".join([*map(str.rstrip, lines), f"{self.num_data:,} held-out data. {self.sentence}"])


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
    functional variance is taken: held-out data from the training distribution say little about the uncertainty
    elsewhere, and among settings that they do not distinguish the most uncertain one is the safest. The network passes
    over the validation data once: only the contraction with the posterior is repeated for each candidate.

    Args:
        q: A Gaussian posterior, or what ``osc.train`` returned.
        validation: Held-out data, in any form that ``osc.laplace`` accepts.
        metric: "nll", "brier" (of a datum: summed over its targets, without those that the likelihood ignores), or a
            function of (predictive, y) that gives one loss for each datum, lower is better.
        link: Method of integrating probabilities; by default that of ``osc.predict``.
        temperature: Tune T too.
        caution: Standard errors of the loss that may be lost for more uncertainty; 0 takes the best loss.
        progress: Show a progress bar.

    Returns:
        A new posterior, whose ``tuning`` is the :class:`Tuning` of these data: the losses of the network alone, of
        ignorance, of ``q`` and of the choice. A value at the boundary of the grid is kept.

    Raises:
        TypeError: ``q`` is not a Gaussian posterior.
        ValueError: an unknown metric, data that do not fit or hold no target, or no candidate with a finite loss.

    Warns if the search ends at the boundary of the grid, and if the tuned posterior predicts worse than the network
    alone by more than two standard errors.

    Cost: one predictive pass over the validation data, and about seventy contractions.

    >>> import osculate as osc
    >>> X, Y = torch.randn(40, 2), torch.randint(3, (40,))
    >>> q = osc.laplace(torch.nn.Linear(2, 3), osc.likelihoods.Categorical(), (X[:20], Y[:20]), prior=1.0)
    >>> tuned = osc.tune(q, (X[20:], Y[20:]))
    >>> tuned.prior.precision.ndim, tuned.tuning.num_data
    (0, 20)
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
    # a prior that the data do not determine could widen without bound: caution moves the temperature if it is tuned
    choice = search.cautious(best, caution, (1,) if temperature else (0,))
    name = metric if isinstance(metric, str) else "loss"
    tuning = held_out.tuning(name, loss, held_out.score(q, loss), search.scored(choice))
    _warn(best, tuning, q.offset is not None)
    return _at(q, *choice).noted(tuning=tuning)


def _warn(best: Point, tuning: Tuning, refined: bool) -> None:
    """Warn of a search that ended at the boundary of the grid, and of a posterior that is worse than its network."""
    ignorance, choice = tuning.ignorance, tuning.choice
    if min(best[0], -best[1]) <= -3.0:
        if ignorance is not None and ignorance.verdict > 0:
            why = f"the network alone predicts worse than ignorance, by {ignorance.words}. Train it longer, or check "
            why += "the data."
        else:
            of_ignorance = "" if ignorance is None else f", {ignorance.mean:.3f} for ignorance"
            why = (
                f"it is {choice.mean:.3f}, {tuning.network:.3f} for the network alone{of_ignorance}. The boundary set "
                "the amount of uncertainty, not the data: tune the prior by the evidence (osc.laplace with "
                "prior='evidence'), or pass more held-out data."
            )
        warnings.warn(
            f"the loss on these held-out data falls with more uncertainty up to the boundary of the grid: {why}",
            stacklevel=3,
        )
    if choice.verdict < 0:
        first = "" if refined else "refine it first with osc.refine(q), "
        warnings.warn(
            f"the tuned posterior predicts these held-out data worse than its network alone, by {choice.words}: {first}"
            "use another structure, or predict with via='mode'.",
            stacklevel=3,
        )
    elif max(best[0], -best[1]) >= 4.0 and choice.verdict == 0:
        warnings.warn(
            "the loss on these held-out data is lowest with almost no uncertainty: the tuned posterior predicts like "
            f"the network alone (the difference is {choice.words}). For more uncertainty tune the prior by the "
            "evidence (osc.laplace with prior='evidence').",
            stacklevel=3,
        )


def ignorance_of(
    likelihood: Likelihood, targets: list[Tensor], classes: int
) -> Callable[[Tensor], Distribution] | None:
    """The best predictive that is the same for all inputs, for targets of some shape; None if there is none."""
    if isinstance(likelihood, Categorical):
        counted = ((y, likelihood.counted(y)) for y in targets)
        labels = torch.cat([y.reshape(-1) if kept is None else y[kept] for y, kept in counted])
        counts = labels.long().bincount(minlength=classes) + 1.0
        return lambda y: CategoricalDistribution(probs=(counts / counts.sum()).expand(*y.shape, -1))
    if len({y.shape[1:] for y in targets}) > 1:
        return None
    every = torch.cat(targets)
    every = every if every.is_floating_point() else every.to(torch.get_default_dtype())
    if isinstance(likelihood, Bernoulli):
        logits = ((every.sum(0) + 1) / (len(every) + 2)).logit()
        return lambda y: likelihood.distribution(logits.expand(y.shape))
    mean = every.mean(0)
    if isinstance(likelihood, Poisson):
        return lambda y: likelihood.distribution(mean.log().expand(y.shape))
    if not isinstance(likelihood, GaussianNoise | HeteroscedasticGaussian):
        return None
    squares = (every - mean).square()
    one = isinstance(likelihood, GaussianNoise) and torch.as_tensor(likelihood.scale).numel() == 1
    spread = (squares.mean() if one else squares.mean(0)).sqrt().expand(mean.shape)
    return (lambda y: Normal(mean.expand(y.shape), spread.expand(y.shape))) if bool((spread > 0).all()) else None


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
    """The loss as a cached function of a point, and ways to choose among the points."""

    def __init__(self, score: Callable[[Point], _Score]) -> None:
        self._score = score
        self._seen: dict[Point, _Score] = {}

    def __call__(self, point: Point) -> float:
        """The mean loss."""
        if point not in self._seen:
            self._seen[point] = self._score(point)
        return self._seen[point].mean

    def scored(self, point: Point) -> _Score:
        """The losses."""
        self(point)
        return self._seen[point]

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
    """Held-out data with the part of their predictive that does not depend on the prior."""

    q: Gaussian
    data: Data
    link: Link
    progress: bool

    def __post_init__(self) -> None:
        likelihood = self.q.likelihood
        self.trouble = ""  # the reason why the last candidate had no loss
        self._coupled = likelihood.needs_covariance(self.link)
        self._units = partial(interacting_outputs, likelihood) if self._coupled else single_outputs
        self._memory = budget(None, self.q.network.device)
        self._kept: list[tuple[Projected, Tensor]] | None = []
        self._batches = list(as_batches(self.data))  # the loader is read once: it may shuffle, or end
        self._alone: list[tuple[Tensor, Tensor]] = []  # outputs of the network, and targets
        size, labelled = 0, False
        for part in self._project(track(self._batches, "validation pass", len(self._batches), self.progress)):
            counted = likelihood.counted(part[1])
            labelled = labelled or counted is None or bool(counted.any())
            if part[0].last:
                self._alone.append((part[0].f, part[1]))
            leaves = tree_leaves([part[0].f, part[0].mean, part[0].parts])
            size += sum(leaf.numel() * leaf.itemsize for leaf in leaves if isinstance(leaf, Tensor))
            if size > KEPT * self._memory:
                self._kept = None
            elif self._kept is not None:
                self._kept.append(part)
        if not labelled:
            raise ValueError("every validation target is one that the likelihood ignores: pass others.")

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

    def tuning(self, metric: str, loss: Loss, start: _Score, choice: _Score) -> Tuning:
        """The losses of the network alone and of ignorance, beside those of two posteriors."""
        likelihood = self.q.likelihood
        network = self._losses(loss, (likelihood.distribution(f) for f, _ in self._alone))
        constant = ignorance_of(likelihood, [y for _, y in self._alone], likelihood.events(self._alone[0][0]))
        ignorance = None
        if constant is not None:
            ignorance = HeldOutLoss.beside(self._losses(loss, (constant(y) for _, y in self._alone)), network)
        found = HeldOutLoss.beside(start.losses, network), HeldOutLoss.beside(choice.losses, network)
        return Tuning(metric, len(network), float(network.mean()), ignorance, *found)

    def _losses(self, loss: Loss, predictives: Iterable[Distribution]) -> Float[Tensor, " N"]:
        each = [loss(predictive, y) for predictive, (_, y) in zip(predictives, self._alone, strict=True)]
        return torch.cat(each).detach().double()
