"""Comparison of a posterior with its network alone."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
from torch import Tensor

from osculate import metrics
from osculate.batches import Data
from osculate.likelihoods import Likelihood
from osculate.posteriors import Point, as_posterior
from osculate.predictive.losses import negative_log_likelihood
from osculate.predictive.tuning import HeldOutLoss, ignorance_of
from osculate.tasks.calibration import Record, columns

#: Number of resamplings for a standard error, and smallest difference that counts, in standard errors and nats.
RESAMPLINGS, ERRORS, NEGLIGIBLE = 200, 2.0, 1e-3
#: Level of the central intervals whose coverage is measured.
LEVEL = 0.95
#: Number of columns without a distribution function: means, deviations, targets, log densities.
WITHOUT_CDF = 4
#: Scores of classes and of numbers, as functions of the columns of :func:`columns`; the first one gives the verdict.
CLASSES: Mapping[str, Callable[..., float]] = {
    "nll": lambda log_probs, y: metrics.nll(log_probs.float(), y),
    "ece": lambda log_probs, y: metrics.ece(log_probs.exp(), y),
    "brier": lambda log_probs, y: metrics.brier(log_probs.exp(), y),
    "accuracy": lambda log_probs, y: metrics.accuracy(log_probs.exp(), y),
}
NUMBERS: Mapping[str, Callable[..., float]] = {
    "nll": lambda mean, spread, y, log_prob, *_: -metrics.log_likelihood(log_prob),
    "rmse": lambda mean, spread, y, *_: metrics.rmse(mean, y),
}
#: Scores that also need the distribution functions, the last column, if they have a closed form.
INTERVALS: Mapping[str, Callable[..., float]] = {
    f"coverage_{100 * LEVEL:.0f}": lambda mean, spread, y, log_prob, cdf: metrics.coverage(cdf, LEVEL),
}

#: Advice for a posterior that is worse than its network, and for one that was tuned before.
UNTUNED = "Tune it on held-out data with osc.tune(q, data), or use the network alone."
TUNED = "It is tuned already: tune it on more data, fit another structure, or use the network alone."


@dataclass(frozen=True)
class Difference:
    """One score of a posterior beside that of its network.

    Args:
        name: Name of the score.
        network: Score of the network alone.
        posterior: Score of the posterior.
        standard_error: Standard error of their difference, paired over the data.
    """

    name: str
    network: float
    posterior: float
    standard_error: float

    @property
    def value(self) -> float:
        """Posterior minus network."""
        return self.posterior - self.network


@dataclass(frozen=True, eq=False)
class Comparison(Record):
    """A posterior beside its network on the same data; prints as a table with a sentence.

    Args:
        differences: Every score, the negative log likelihood first.
        num_data: Number of predictions.
        way_out: Advice for a posterior that is worse than its network.
        scores: Scores by name: ``network_nll``, ``posterior_nll``, ``difference_nll``, ``difference_nll_error``, ….
    """

    differences: tuple[Difference, ...]
    num_data: int
    way_out: str = UNTUNED

    @property
    def verdict(self) -> int:
        """1 if the posterior predicts better by over two standard errors and 0.001 nats, −1 if worse, else 0."""
        first = self.differences[0]
        if abs(first.value) <= max(ERRORS * first.standard_error, NEGLIGIBLE):
            return 0
        return -1 if first.value > 0 else 1

    @property
    def sentence(self) -> str:
        """A sentence about the difference, with a way out."""
        if self.verdict < 0:
            return f"{self.finding} {self.way_out}"
        return self.finding

    @property
    def finding(self) -> str:
        """A sentence about the difference."""
        first = self.differences[0]
        found = f"{abs(first.value):.3f} ± {first.standard_error:.3f} nats per prediction"
        if self.verdict > 0:
            return f"The posterior predicts better than its network alone, by {found}."
        if self.verdict < 0:
            return f"The posterior predicts worse than its network alone, by {found}."
        return f"The posterior and its network alone predict alike, within two standard errors: {found}."

    def __str__(self) -> str:
        rows = [("", "network", "posterior", "difference", "")]
        rows += [
            (d.name, f"{d.network:.3f}", f"{d.posterior:.3f}", f"{d.value:+.3f}", f"± {d.standard_error:.3f}")
            for d in self.differences
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*lines, f"{self.num_data:,} predictions. {self.sentence}"])


def compare(q: Any, data: Data, *, batch_size: int = 500, progress: bool = False, **predict_options: Any) -> Comparison:
    """Compare a posterior with its network alone, on the same data.

    Args:
        q: A posterior, or what ``osc.train`` returned; for an ensemble the first member is the network. The network has
            the posterior's noise scale, or its own by the held-out data that ``osc.tune`` has seen.
        data: Held-out inputs and targets: ``(X, Y)``, a loader, or an iterable of batches that can be
            read twice.
        batch_size: Rows at a time where ``data`` is a pair of tensors.
        progress: Show progress bars.
        **predict_options: Options of ``osculate.predict`` for the posterior, for example ``link="probit"``.

    Returns:
        Scores of both with the standard errors of their differences, that of the mean loss in closed form and others
        over 200 resamplings of the data: negative log likelihood in nats, for classes calibration error, Brier score
        and accuracy, for numbers root mean squared error and the coverage of the central 95 % intervals (where it has
        a closed form).

    Raises:
        ValueError: targets do not fit the predictions, or there are no data.

    Warns if the posterior is worse than its network by more than two standard errors.

    >>> import osculate as osc
    >>> X, Y = torch.randn(80, 2), torch.randint(3, (80,))
    >>> q = osc.posteriors.Point(torch.nn.Linear(2, 3), osc.likelihoods.Categorical())
    >>> [difference.name for difference in osc.compare(q, (X, Y)).differences]
    ['nll', 'ece', 'brier', 'accuracy']
    """
    posterior = as_posterior(q)
    tuning = getattr(posterior, "tuning", None)
    alone = Point.of(posterior.network, posterior.likelihood if tuning is None else tuning.chosen.alone)
    discrete, mine = columns(posterior, data, batch_size, progress, "predicting", predict_options)
    _, networks = columns(alone, data, batch_size, progress, "predicting by the network", {})
    found = replace(compared(discrete, mine, networks), way_out=UNTUNED if tuning is None else TUNED)
    if found.verdict < 0:
        warnings.warn(found.sentence, stacklevel=2)
    return found


def compared(discrete: bool, mine: list[Tensor], networks: list[Tensor]) -> Comparison:
    """The comparison of given predictions.

    Args:
        discrete: True for classes.
        mine: The columns (:func:`osculate.tasks.calibration.columns`) of the posterior.
        networks: The columns of its network alone.
    """
    known = CLASSES if discrete else NUMBERS
    if not discrete and all(len(found) > WITHOUT_CDF for found in (mine, networks)):
        known = {**NUMBERS, **INTERVALS}
    resampled = torch.randint(
        len(mine[0]), (RESAMPLINGS, len(mine[0])), generator=torch.Generator().manual_seed(0)
    )  # the same rows of both
    differences = []
    for name, score in known.items():
        each = [score(*(c[rows] for c in mine)) - score(*(c[rows] for c in networks)) for rows in resampled]
        error = float(torch.tensor(each, dtype=torch.double).std()) if len(mine[0]) > 1 else inf
        if name == next(iter(known)):  # the mean of a loss: no resampling is needed
            error = HeldOutLoss.beside(losses_of(discrete, mine), losses_of(discrete, networks)).standard_error
        differences.append(Difference(name, score(*networks), score(*mine), error))
    scores: dict[str, float] = {}
    for d in differences:
        scores |= {f"network_{d.name}": d.network, f"posterior_{d.name}": d.posterior}
        scores |= {f"difference_{d.name}": d.value, f"difference_{d.name}_error": d.standard_error}
    return Comparison(tuple(differences), len(mine[0]), scores=scores)


#: Log probability of a target that counts for a probability of zero.
IMPOSSIBLE = -87.0


def losses_of(discrete: bool, found: list[Tensor]) -> Tensor:
    """The negative log likelihood of each prediction, from its :func:`osculate.tasks.calibration.columns`."""
    logs = found[0].gather(1, found[1][:, None]) if discrete else found[3]
    return -logs.clamp(min=IMPOSSIBLE).sum(1) if discrete else -logs.sum(1)


def to_ignorance(likelihood: Likelihood, discrete: bool, found: list[Tensor]) -> HeldOutLoss | None:
    """The loss of predictions beside ignorance of the same targets, as in :class:`osculate.predictive.tuning.Tuning`.

    Args:
        likelihood: p(y|f).
        discrete: True for classes.
        found: The columns of the predictions.
    """
    y = found[1] if discrete else found[2]
    constant = ignorance_of(likelihood, [y], found[0].shape[-1])
    if constant is None:
        return None
    return HeldOutLoss.beside(losses_of(discrete, found), negative_log_likelihood(constant(y), y, None).double())
