"""Prior precision, temperature, noise and mean tuned on held-out data, with a single pass over the network."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import exp, inf, isfinite, log, log10
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Categorical as CategoricalDistribution, Distribution, Normal
from torch.utils._pytree import tree_leaves

from osculate.batches import BATCH_SIZE, Data, Fixed, as_batches
from osculate.curvature.engine import require_few
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
from osculate.streams import RowStream, lazily

#: What to do where a column for each output takes too long.
WITHOUT_COLUMNS = (
    "Tuning needs the variance of every output: leave it out and predict with via='sampled' or link='functions', or "
    "scale the network's logits alone, with osc.methods.TemperatureScaling."
)
#: A loss of each datum, lower is better.
Loss = Callable[[Distribution, Tensor], Float[Tensor, " N"]]
#: Projected validation data are kept up to this multiple of the memory of a pass, and recomputed beyond it.
KEPT = 8
#: The coarse grid: decades on the prior precision, and on the temperature.
DECADES = (-2.0, -1.0, 0.0, 1.0, 2.0, 4.0)
TEMPERATURES = (-3.0, -2.5, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5)
#: Smallest step of the search, largest distance from the start, and distance that is called its boundary, in decades.
FINEST, WIDEST, EDGE = 0.05, 6.0, 5.0
#: Standard errors of the loss that a step of the search gains at least.
FLAT = 0.02
#: Smallest difference of losses that counts, in standard errors and as a share of the loss.
ERRORS, ROUNDING = 2.0, 1e-4


#: In the grid: shares of the way from the network to the mean of a refined posterior, and of the way from its noise
#: scale to the error of the network alone on the held-out data, in logarithms.
SHARES, NOISES = (1.0, 0.0), (0.0, 0.5, 1.0)
#: Decades by which the noise scale may leave the range between these two.
AROUND = 0.5
#: Standard deviation of the logarithm of the noise scale around that of the posterior, before the held-out data.
SPREAD = 0.5
#: Halvings of an interval.
HALVINGS = 60
#: Nats per target by which a choice may be worse than the network alone, at the upper 95 % limit.
WORSE = 0.05


class Candidate(NamedTuple):
    """A candidate, relative to the posterior that is tuned.

    Attributes:
        prior: Decades on the prior precision.
        temperature: log10 of the temperature, at the noise scale of that posterior.
        share: Share of the way from the network to the mean.
        noise: Decades on the noise scale of the predictive; the covariance of the weights stays.
    """

    prior: float
    temperature: float
    share: float = 1.0
    noise: float = 0.0


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
class Chosen:
    """The settings that ``osc.tune`` chose; prints as a sentence.

    Args:
        precision: Factor of the prior precisions.
        temperature: Temperature.
        noise: Factor of the noise scale, 1 without one.
        share: Share of the way from the network to the mean of a refined posterior; None for others.
        alone: Likelihood with which the network alone is compared, with its own noise scale by these data.
    """

    precision: float
    temperature: float
    noise: float
    share: float | None
    alone: Likelihood

    def __str__(self) -> str:
        found = f"Prior precisions × {self.precision:.3g}, temperature {self.temperature:.3g}"
        found += "" if self.noise == 1 else f", noise scale × {self.noise:.3g}"
        found += "" if self.share is None else f", mean {self.share:.0%} of the way from the network"
        return f"{found}."


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
        network: Mean loss of the network alone, p(y|f(x; θ*)), with its own noise scale by these data.
        ignorance: Loss of ignorance.
        start: Loss of the posterior before tuning.
        choice: Loss of the tuned posterior.
        chosen: The settings of the choice.
    """

    metric: str
    num_data: int
    network: float
    ignorance: HeldOutLoss | None
    start: HeldOutLoss
    choice: HeldOutLoss
    chosen: Chosen

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
        return "\n".join([*map(str.rstrip, lines), f"{self.num_data:,} held-out data. {self.sentence} {self.chosen}"])


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
    Λ = G/T + s diag(δ). With the temperature, two more numbers are chosen: the noise scale of a Gaussian likelihood,
    and the share of the way from the network to the mean of a refined posterior, so that the network alone is a limit
    of the candidates. A grid is followed by a compass search down to 0.05 decades.

    Of all candidates whose loss is within ``caution`` standard errors of the best (of the paired difference over the
    data), the one with the largest functional variance is taken: held-out data from the training distribution say
    little about the uncertainty elsewhere, and among settings that they do not distinguish the most uncertain one is
    the safest. For ``metric="nll"``, with ``caution`` and ``temperature``, only those count whose NLL per target is at
    most 0.05 nats above that of the network alone, by its upper 95 % limit: where few data cannot show that a posterior
    does no harm, the choice is close to the network. A log-normal density around the present noise scale, half a unit
    of its logarithm wide, keeps a few residuals from determining that of the choice and of the network alone.

    Args:
        q: A Gaussian posterior, or what ``osc.train`` returned.
        validation: Held-out data, in any form that ``osc.laplace`` accepts.
        metric: "nll", "brier" (of a datum: summed over its targets, without those that the likelihood ignores), or a
            function of (predictive, y) that gives one loss for each datum, lower is better.
        link: Method of integrating probabilities; by default that of ``osc.predict``.
        temperature: Tune T too, and with it noise scale and mean; False keeps all but the prior precision.
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

    Cost: one predictive pass over the validation data, and about seventy contractions with the posterior (twice as many
    for a refined classifier); the losses are evaluated up to three hundred times. Data whose projections do not fit
    into memory are passed anew each time.

    >>> import osculate as osc
    >>> X, Y = torch.randn(40, 2), torch.randint(3, (40,))
    >>> q = osc.laplace(torch.nn.Linear(2, 3), osc.likelihoods.Categorical(), (X[:20], Y[:20]), prior=1.0)
    >>> tuned = osc.tune(q, (X[20:], Y[20:]))
    >>> tuned.prior.precision.ndim, tuned.tuning.num_data
    (0, 20)
    """
    q = as_gaussian(q, "tune")
    if q.prior.curvature is not None:
        raise ValueError(
            f"the prior {q.prior!r} is given, and tuning would change it. For another weight of the earlier data "
            "compare q.replace(prior=q.prior.with_precision(weight)) on held-out data."
        )
    plan = q.fit.plan
    if len(plan.blocks) > 1:  # a last layer alone has its columns in closed form
        require_few(plan.outputs, 1, plan, q.network.device, WITHOUT_COLUMNS)
    if isinstance(metric, str):
        by_name = lookup("metric", metric, METRICS)
        loss: Loss = lambda predictive, y: by_name(predictive, y, q.likelihood.counted(y))  # noqa: E731
    else:
        loss = metric
    noisy, refined = temperature and q.likelihood.has_noise, temperature and q.offset is not None
    held_out = _Validation(q, validation, choose_link(q.likelihood, link), progress, metric == "nll")
    error = held_out.error if noisy else 1.0
    network = held_out.network(loss, error)
    bounds = {"prior": (-WIDEST, WIDEST)}
    bounds |= {"temperature": (-WIDEST, WIDEST)} if temperature else {}
    bounds |= {"share": (0.0, 1.0)} if refined else {}
    bounds |= {"noise": (min(0.0, log10(error)) - AROUND, max(0.0, log10(error)) + AROUND)} if noisy else {}
    search = _Search(lambda point: held_out.score(point, loss), network + held_out.penalty(log10(error)), bounds)
    at = log10(float(q.temperature))
    noises = [part * log10(error) for part in (NOISES if noisy else NOISES[:1])]
    grid = list(product(TEMPERATURES if temperature else (at,), DECADES, SHARES if refined else SHARES[:1], noises))
    points = [Candidate(prior, t, share, noise) for t, prior, share, noise in grid]
    if temperature:  # the network alone
        points.append(Candidate(WIDEST, -WIDEST, 0.0 if refined else 1.0, log10(error)))
    best = min(track(points, "tuning", len(points), progress), key=search)
    if not isfinite(search(best)):
        why = f" ({held_out.trouble})" if held_out.trouble else ""
        raise ValueError(
            f"no candidate gave a finite loss on the validation data{why}: check its targets and the metric."
        )
    best = search.lowest(best)
    limit = WORSE * held_out.targets if metric == "nll" and caution > 0 and temperature else inf
    # a prior that the data do not determine could widen without bound: caution moves the temperature if it is tuned
    choice = search.cautious(best, caution, limit, ["temperature" if temperature else "prior"])
    name = metric if isinstance(metric, str) else "loss"
    tuning = held_out.tuning(name, loss, error, Candidate(0.0, at), choice)
    _warn((best, choice), tuning, q.offset is not None)
    return _at(q, choice).noted(tuning=tuning)


def _warn(found: Sequence[Candidate], tuning: Tuning, refined: bool) -> None:
    """Warn of a search that ended at the boundary of the grid, and of a posterior that is worse than its network.

    Args:
        found: The best candidate, and the choice.
        tuning: Losses.
        refined: True if the posterior is refined.
    """
    ignorance, choice = tuning.ignorance, tuning.choice
    if min(min(each.prior, -each.temperature) for each in found) <= -EDGE:
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
    elif max(found[1].prior, -found[1].temperature) >= 4.0 and choice.verdict == 0:
        warnings.warn(
            "the loss on these held-out data is lowest with almost no uncertainty: the tuned posterior predicts like "
            f"the network alone (the difference is {choice.words}). For more uncertainty raise caution, or pass more "
            "held-out data.",
            stacklevel=3,
        )


def ignorance_of(
    likelihood: Likelihood, targets: list[Tensor], classes: int
) -> Callable[[Tensor], Distribution] | None:
    """The best predictive that is the same for all inputs, for targets of some shape; None if there is none."""
    if isinstance(likelihood, Categorical) and targets[0].is_floating_point():  # probabilities, with classes last
        shares = torch.cat([y.reshape(-1, classes) for y in targets]).sum(0) + 1.0
        return lambda y: CategoricalDistribution(probs=(shares / shares.sum()).expand(y.shape))
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


def _at(q: Gaussian, point: Candidate) -> Gaussian:
    factor = 10**point.noise
    changes: dict[str, Any] = {} if point.noise == 0 else {"likelihood": q.likelihood.times(factor)}
    if q.offset is not None and point.share != 1:
        changes["offset"] = point.share * q.offset
    prior = q.prior.with_precision(q.prior.precision * 10**point.prior)
    return q.replace(prior=prior, temperature=10**point.temperature / factor**2, **changes)


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
    """The loss as a cached function of a point, and ways to choose among the points.

    Args:
        score: The losses of a point.
        network: Losses of the network alone.
        bounds: Limits of the search by the name of a coordinate.
    """

    def __init__(
        self,
        score: Callable[[Candidate], _Score],
        network: Float[Tensor, " N"],
        bounds: Mapping[str, tuple[float, float]],
    ) -> None:
        self._score, self._network, self._bounds = score, network, bounds
        self._seen: dict[Candidate, _Score] = {}

    def __call__(self, point: Candidate) -> float:
        """The mean loss."""
        return self.scored(point).mean

    def scored(self, point: Candidate) -> _Score:
        """The losses."""
        if point not in self._seen:
            self._seen[point] = self._score(point)
        return self._seen[point]

    def lowest(self, start: Candidate) -> Candidate:
        """The point of lowest loss near another one, but not further along a valley that these data find flat."""
        losses = self.scored(start).losses
        error = float(losses.std()) / len(losses) ** 0.5 if len(losses) > 1 else 0.0
        return self._descend(start, list(self._bounds), self, FLAT * error)

    def _descend(
        self, start: Candidate, axes: Sequence[str], value: Callable[[Candidate], float], gain: float = 0.0
    ) -> Candidate:
        """Step along these axes while it lowers the value by some gain, with steps halved down to FINEST."""
        best, step = start, 0.5
        while step >= FINEST:
            moves = [(axis, getattr(best, axis) + sign * step) for axis in axes for sign in (-1, 1)]
            inside = [(a, to) for a, to in moves if self._bounds[a][0] <= to <= self._bounds[a][1]]
            nearest = min((best._replace(**{axis: to}) for axis, to in inside), key=value, default=best)
            if value(nearest) < value(best) - gain:
                best = nearest
            else:
                step /= 2
        return best

    def cautious(self, best: Candidate, caution: float, limit: float, axes: Sequence[str]) -> Candidate:
        """The point of largest functional variance among those not clearly worse than the best, nor than the network.

        Args:
            best: The point of lowest loss.
            caution: Standard errors of the loss that may be lost to it.
            limit: Upper 95 % limit of the loss that may be lost to the network alone. Where no point keeps both, those
                that keep this one count, and for a single datum those that keep the other.
            axes: Coordinates of a search for still more variance.
        """
        from scipy.special import stdtrit

        data = len(self._network)
        errors = max(ERRORS, float(stdtrit(data - 1, 0.975))) if data > 1 else inf  # Student's t, for few data

        def near(point: Candidate) -> bool:
            change = HeldOutLoss.beside(self.scored(point).losses, self.scored(best).losses)
            return change.difference <= (caution * change.standard_error if isfinite(change.standard_error) else 0.0)

        def safe(point: Candidate) -> bool:
            change = HeldOutLoss.beside(self.scored(point).losses, self._network)
            return change.difference + errors * change.standard_error <= limit

        seen = list(self._seen)
        rules = (lambda point: near(point) and safe(point)), safe, near
        allowed = next(rule for rule in rules if any(map(rule, seen)))

        def tightness(point: Candidate) -> float:
            return -self.scored(point).spread if allowed(point) else inf

        return self._descend(min(seen, key=tightness), axes, tightness)


@dataclass
class _Validation:
    """Held-out data with the part of their predictive that does not depend on the prior."""

    q: Gaussian
    data: Data
    link: Link
    progress: bool
    penalised: bool

    def __post_init__(self) -> None:
        likelihood = self.q.likelihood
        self.trouble = ""  # the reason why the last candidate had no loss
        self._coupled = likelihood.needs_covariance(self.link)
        self._units = partial(interacting_outputs, likelihood) if self._coupled else single_outputs
        self._memory = budget(self.q.memory, self.q.network.device)
        self._kept: list[tuple[Projected, Tensor]] | None = []
        # a loader is read once: it may shuffle, or end; a stream is not held
        data = lazily(self.data, BATCH_SIZE, self.q.mean.dtype)
        self._batches = Fixed(data, BATCH_SIZE) if isinstance(data, RowStream) else list(as_batches(data))
        self._last: tuple[Candidate, list[tuple[Projected, Tensor, Tensor]]] | None = None
        self._alone: list[tuple[Tensor, Tensor]] = []  # outputs of the network, and targets
        size, targets = 0, 0
        for part in self._project(track(self._batches, "validation pass", len(self._batches), self.progress)):
            counted = likelihood.counted(part[1])
            if part[0].last:
                self._alone.append((part[0].f, part[1]))
                targets += part[1].numel() if counted is None else int(counted.sum())
            leaves = tree_leaves([part[0].f, part[0].mean, part[0].parts])
            size += sum(leaf.numel() * leaf.itemsize for leaf in leaves if isinstance(leaf, Tensor))
            if size > (KEPT if self.q.memory is None else 1) * self._memory:
                self._kept = None
            elif self._kept is not None:
                self._kept.append(part)
        if not targets:
            raise ValueError("every validation target is one that the likelihood ignores: pass others.")
        self.size = sum(len(y) for _, y in self._alone)
        self.targets = targets / self.size  # of a datum, on average

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

    def score(self, point: Candidate, loss: Loss) -> _Score:
        """The losses of a candidate, with the penalty on its noise scale."""
        q, losses, variances = _at(self.q, point), [], []
        try:
            for each, covariance, y in self._covariances(point._replace(share=1.0, noise=0.0)):
                variances.append(covariance.diagonal(dim1=-2, dim2=-1).reshape(len(y), -1).mean(-1))
                covariance = covariance if self._coupled else covariance.reshape(each.f.shape)
                mean = each.mean if point.share == 1 else each.f + point.share * (each.mean - each.f)
                losses.append(loss(q.likelihood.marginal(mean, covariance, self.link), y))
        except ValueError as error:  # a precision that cannot be factorised, or probabilities that are not finite
            self.trouble = str(error)
            return _Score(torch.full((1,), inf), 0.0)
        found = torch.cat(losses).detach().double() + self.penalty(point.noise)
        return _Score(found, float(torch.cat(variances).mean()))

    def penalty(self, decades: float) -> float:
        """−log of a log-normal density around the posterior's noise scale, for each held-out datum."""
        return 0.5 * (decades * log(10) / SPREAD) ** 2 / self.size * self.penalised

    def _covariances(self, point: Candidate) -> Iterable[tuple[Projected, Tensor, Tensor]]:
        """Projections, covariances of the function values, and targets; the last ones are kept if they are small."""
        if self._kept is None or self._coupled:
            projected = self._project(self._batches) if self._kept is None else self._kept
            return self._contracted(_at(self.q, point), projected)
        if self._last is None or self._last[0] != point:
            self._last = point, list(self._contracted(_at(self.q, point), self._kept))
        return self._last[1]

    def _contracted(
        self, q: Gaussian, projected: Iterable[tuple[Projected, Tensor]]
    ) -> Iterator[tuple[Projected, Tensor, Tensor]]:
        parts: list[Tensor] = []
        for each, y in projected:
            parts.append(q.precision.contract(each.parts, each.group))
            if each.last:
                yield each, torch.cat(parts, 1), y
                parts = []

    @property
    def error(self) -> float:
        """The noise scale of the network alone, in units of that of the posterior: the most probable one by these data.

        A log-normal density around the posterior's own keeps a few small residuals from determining it.
        """
        sums = [self.q.likelihood.noise_balance(self.q.likelihood.statistics(f, y)) for f, y in self._alone]
        size, squares = (float(sum(each)) for each in zip(*sums, strict=True))
        if not 0 < squares < inf:
            return 1.0
        low, high = -WIDEST * log(10), WIDEST * log(10)
        for _ in range(HALVINGS):  # the slope of n (log r + v / 2r²) + (log r)² / 2s² in log r, which grows
            middle = 0.5 * (low + high)
            slope = size - squares * exp(-2 * middle) + self.penalised * middle / SPREAD**2
            low, high = (middle, high) if slope < 0 else (low, middle)
        return exp(0.5 * (low + high))

    def network(self, loss: Loss, noise: float) -> Float[Tensor, " N"]:
        """The losses of the network alone, with so many times the noise scale of the posterior."""
        likelihood = self.alone(noise)
        return self._losses(loss, (likelihood.distribution(f) for f, _ in self._alone))

    def alone(self, noise: float) -> Likelihood:
        """The likelihood of the network alone."""
        return self.q.likelihood if noise == 1 else self.q.likelihood.times(noise)

    def tuning(self, metric: str, loss: Loss, noise: float, start: Candidate, choice: Candidate) -> Tuning:
        """The losses of the network alone and of ignorance, beside those of two candidates."""
        likelihood, network = self.q.likelihood, self.network(loss, noise)
        constant = ignorance_of(likelihood, [y for _, y in self._alone], likelihood.events(self._alone[0][0]))
        ignorance = None
        if constant is not None:
            ignorance = HeldOutLoss.beside(self._losses(loss, (constant(y) for _, y in self._alone)), network)
        losses = (self.score(each, loss).losses - self.penalty(each.noise) for each in (start, choice))
        found = [HeldOutLoss.beside(each, network) for each in losses]
        chosen = self._chosen(choice, noise)
        return Tuning(metric, len(network), float(network.mean()), ignorance, found[0], found[1], chosen)

    def _chosen(self, choice: Candidate, noise: float) -> Chosen:
        """The settings of a candidate."""
        tuned, refined = _at(self.q, choice), self.q.offset is not None
        share = choice.share if refined else None
        return Chosen(10**choice.prior, float(tuned.temperature), 10**choice.noise, share, self.alone(noise))

    def _losses(self, loss: Loss, predictives: Iterable[Distribution]) -> Float[Tensor, " N"]:
        each = [loss(predictive, y) for predictive, (_, y) in zip(predictives, self._alone, strict=True)]
        return torch.cat(each).detach().double()
