"""Calibration of predictions: scores, reliability diagrams, and coverage of intervals."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution

from osculate import metrics
from osculate.batches import Data, number_of_batches
from osculate.memory import require
from osculate.posteriors import as_posterior
from osculate.tasks._predictions import in_closed_form, predictions

#: Copies of all predictions that are held while they are joined and scored.
COPIES = 6
#: Number of classes above which a record keeps no probabilities, such as that of the tokens of a language model.
MANY = 10_000
#: Levels of the central intervals whose coverage is measured.
LEVELS = (0.5, 0.9, 0.95)


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """Scores by name.

    Args:
        scores: Scores by name, as :meth:`metrics` returns them.
    """

    scores: Mapping[str, float] = field(default_factory=dict)

    def metrics(self) -> dict[str, float]:
        """The scores by name, as plain numbers."""
        return dict(self.scores)


@dataclass(frozen=True, eq=False)
class CalibrationRecord(Record):
    """The calibration of class probabilities: scores, and the bins of a reliability diagram.

    Args:
        probs: Predicted probabilities, one row for each target (each token or pixel, without those that the likelihood
            ignores); for a likelihood with one probability for each output, those of 0 and 1. Of more than 10,000
            classes none is kept: (N, 0).
        targets: The right classes.
        confidence: Mean probability of the predicted class in each bin, NaN in an empty one.
        accuracy: Share of right predictions in each bin, NaN in an empty one.
        count: Number of predictions in each bin.
        scores: Accuracy, nll, brier (summed over classes), ece, mce and rmsce over all predictions.
    """

    probs: Float[Tensor, "N C"]
    targets: Int[Tensor, " N"]
    confidence: Float[Tensor, " B"]
    accuracy: Float[Tensor, " B"]
    count: Int[Tensor, " B"]


@dataclass(frozen=True, eq=False)
class RegressionRecord(Record):
    """The calibration of predictions of real-valued targets and counts.

    Args:
        mean: Predictive means.
        standard_deviation: Predictive standard deviations, observation noise included.
        targets: Observed targets.
        scores: RMSE, log_likelihood (per point, in nats) and, where the predictive has a distribution function
            in closed form (counts and mixtures of Student t have none), the coverage of the central 50, 90 and 95 %
            intervals.
    """

    mean: Float[Tensor, "N C"]
    standard_deviation: Float[Tensor, "N C"]
    targets: Float[Tensor, "N C"]


def calibration(
    q: Any,
    data: Data,
    *,
    bins: int = metrics.BINS,
    batch_size: int = 500,
    target_scale: Tensor | None = None,
    progress: bool = False,
    **predict_options: Any,
) -> CalibrationRecord | RegressionRecord:
    """Compare the predictions for a data set with its targets.

    Args:
        q: Anything that ``osculate.predict`` takes; ``posteriors.Point`` for the network alone.
        data: Inputs and targets: ``(X, Y)``, a loader, or an iterable of batches.
        bins: Bins of equal width for the calibration errors and the reliability diagram.
        batch_size: Rows at a time where ``data`` is a pair of tensors.
        target_scale: Scale by which regression targets were divided (``dataset.target_scale``); errors and
            log-likelihoods are then those of the original units.
        progress: Show a progress bar.
        **predict_options: Passed to ``osculate.predict``, for example ``link="probit"``.

    Returns:
        A :class:`CalibrationRecord` for classes and for Bernoulli targets (each position or output counts as one
        prediction, an ignored one as none), a :class:`RegressionRecord` for real-valued targets
        and counts.

    Raises:
        ValueError: targets do not fit the predictions, or there are no data or no targets.

    >>> import osculate as osc
    >>> q = osc.posteriors.Point(torch.nn.Linear(2, 3), osc.likelihoods.Categorical())
    >>> record = calibration(q, (torch.zeros(6, 2), torch.arange(6) % 3))
    >>> sorted(record.metrics())
    ['accuracy', 'brier', 'ece', 'mce', 'nll', 'rmsce']
    """
    discrete, found = columns(q, data, batch_size, progress, "predicting", predict_options, many=MANY)
    return record_of(discrete, found, bins, target_scale)


def record_of(
    discrete: bool, found: list[Tensor], bins: int = metrics.BINS, target_scale: Tensor | None = None
) -> CalibrationRecord | RegressionRecord:
    """The record for the result of :func:`columns`; the other arguments are those of :func:`calibration`."""
    if discrete and len(found) > 2:
        return _scored_summaries(found[1], found[2], bins)
    return scored_classes(found[0], found[1], bins) if discrete else _regression(found, target_scale)


def columns(
    q: Any,
    data: Data,
    batch_size: int,
    progress: bool,
    title: str,
    options: dict[str, Any],
    many: int | None = None,
) -> tuple[bool, list[Tensor]]:
    """Predictions and targets of a data set, one row each, in double precision on the CPU.

    Returns:
        For classes True, with the log probabilities (N, C) and the targets (N,); for more than ``many`` classes, in
        their place no columns (N, 0), the targets, and the numbers (N, 4) that scores are made of. For numbers False,
        with the means, standard deviations, targets, log densities and, if in closed form, distribution functions
        (N, C).
    """
    pieces: list[tuple[Tensor, ...]] = []
    discrete, likelihood = True, as_posterior(q).likelihood
    for predictive, _, y in predictions(q, data, batch_size, progress, title, options):
        if isinstance(predictive, Categorical | Bernoulli):
            log_probs, targets = _classes(predictive, y, likelihood.counted(y))
            large = many is not None and log_probs.shape[1] > many
            pieces.append(_summaries(log_probs, targets) if large else (log_probs, targets))
            del log_probs
        else:
            discrete = False
            pieces.append(_numbers(predictive, y))
        if len(pieces) == 1:
            whole = sum(part.nbytes for part in pieces[0]) * (number_of_batches(data, batch_size) or 1)
            numbers = sum(part.shape[1:].numel() for part in pieces[0])
            require(
                COPIES * whole,
                torch.device("cpu"),
                f"the predictions of all data ({numbers:,} numbers for each target) and their scores",
                "Score fewer data.",
            )
    return discrete, [torch.cat(part) for part in zip(*pieces, strict=True)]


def reliability_bins(
    probs: Float[Tensor, "N C"], targets: Int[Tensor, " N"], bins: int = metrics.BINS
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"], Int[Tensor, " B"]]:
    """Mean confidence, accuracy and count of the predictions in bins of equal width of confidence.

    >>> probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]])
    >>> reliability_bins(probs, torch.tensor([0, 1, 0]), bins=2)[2]
    tensor([0, 3])
    """
    confidence, predicted = probs.double().max(-1)
    return binned(confidence, (predicted == targets).double(), bins)


def binned(
    confidence: Float[Tensor, " N"], right: Float[Tensor, " N"], bins: int
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"], Int[Tensor, " B"]]:
    """Mean confidence, share of right predictions and count in bins of equal width of confidence."""
    number = (confidence * bins).long().clamp(0, bins - 1)
    count = number.bincount(minlength=bins)
    means = [number.bincount(weights=values, minlength=bins) / count for values in (confidence, right)]
    return means[0], means[1], count


def _classes(predictive: Categorical | Bernoulli, y: Tensor, counted: Tensor | None) -> tuple[Tensor, Tensor]:
    """Log-probabilities (M, C) and targets (M,) of one batch that are counted, in double precision on the CPU."""
    if y.is_floating_point() and y.shape == predictive.probs.shape and isinstance(predictive, Categorical):
        raise ValueError("scores compare with labels, and these targets are probabilities: pass integer class indices.")
    if isinstance(predictive, Bernoulli):
        # log_prob uses the logits if there are any: 1 - p loses all digits once p rounds to 1
        half = torch.ones_like(predictive.probs)
        log_probs = torch.stack([predictive.log_prob(0 * half), predictive.log_prob(half)], -1)
    else:
        # not predictive.logits: made from probabilities, it is cut off at 1e-7
        log_probs = predictive.probs.log()
    if log_probs.shape[:-1] != y.shape:
        raise ValueError(
            f"targets of shape {tuple(y.shape)} do not fit predictions for targets of shape"
            f" {tuple(log_probs.shape[:-1])}; give one target for each prediction."
        )
    if isinstance(predictive, Bernoulli) and y.is_floating_point() and not bool((y == y.round()).all()):
        raise ValueError(
            "calibration counts how often a target is 1, and some of these lie between 0 and 1: binarise them with"
            " torch.bernoulli(y)."
        )
    if counted is not None:
        log_probs, y = log_probs[counted.to(log_probs.device)], y[counted]
    return log_probs.reshape(-1, log_probs.shape[-1]).double().cpu(), y.flatten().long().cpu()


def scored_classes(
    log_probs: Float[Tensor, "N C"], targets: Int[Tensor, " N"], bins: int = metrics.BINS
) -> CalibrationRecord:
    """The record of given probabilities.

    Args:
        log_probs: Their logarithms, in double precision.
        targets: The right classes.
        bins: Number of bins of the calibration errors and the reliability diagram.

    Raises:
        ValueError: no targets, or a target that is not a class.
    """
    _require_targets(targets)
    probs = log_probs.exp()
    scores = {
        "accuracy": metrics.accuracy(probs, targets),
        # in float32, so that a probability of zero costs 87 nats as elsewhere
        "nll": metrics.nll(log_probs.float(), targets),
        "brier": metrics.brier(probs, targets),
        "ece": metrics.ece(probs, targets, bins),
        "mce": metrics.mce(probs, targets, bins),
        "rmsce": metrics.rmsce(probs, targets, bins),
    }
    return CalibrationRecord(probs, targets, *reliability_bins(probs, targets, bins), scores=scores)


def _summaries(log_probs: Float[Tensor, "N C"], targets: Int[Tensor, " N"]) -> tuple[Tensor, Tensor, Tensor]:
    """No probabilities (N, 0), the targets, and what the scores of each prediction are made of (N, 4).

    The numbers are the largest probability, 1 where its class is the right one, log p of the right class, and Σ_c p_c².
    """
    highest, predicted = log_probs.max(-1)
    right = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    squares = (2 * log_probs).logsumexp(-1).exp()
    each = torch.stack([highest.exp(), (predicted == targets).double(), right, squares], -1)
    return log_probs[:, :0], targets, each


def _scored_summaries(targets: Int[Tensor, " N"], each: Float[Tensor, "N 4"], bins: int) -> CalibrationRecord:
    """The record of :func:`scored_classes` without probabilities."""
    _require_targets(targets)
    confidence, correct, log_prob, squares = each.unbind(-1)
    claimed, accuracy, count = binned(confidence, correct, bins)
    share, gap = count / count.sum(), (accuracy - claimed).nan_to_num().abs()
    scores = {
        "accuracy": float(correct.mean()),
        "nll": float(-log_prob.clamp(min=math.log(torch.finfo(torch.float32).tiny)).mean()),
        "brier": float((squares - 2 * log_prob.exp() + 1).mean()),
        "ece": float((share * gap).sum()),
        "mce": float(gap.max()),
        "rmsce": float((share * gap.square()).sum().sqrt()),
    }
    return CalibrationRecord(each[:, :0], targets, claimed, accuracy, count, scores=scores)


def _require_targets(targets: Int[Tensor, " N"]) -> None:
    if not len(targets):
        raise ValueError("every target is one that the likelihood ignores: pass data with other targets.")


def _numbers(predictive: Distribution, y: Tensor) -> tuple[Tensor, ...]:
    """Mean, standard deviation, targets, log p and F at the targets of one batch: all (N, C), double, on the CPU.

    F is left out if it has no closed form.
    """
    if predictive.mean.shape != y.shape:
        raise ValueError(
            f"targets of shape {tuple(y.shape)} do not fit predictions of shape {tuple(predictive.mean.shape)};"
            " reshape the targets, for example with y[:, None]."
        )
    y = y.to(predictive.mean.device)
    cdf = in_closed_form(predictive.cdf, y)
    values = (predictive.mean, predictive.stddev, y, predictive.log_prob(y), *(() if cdf is None else (cdf,)))
    return tuple(value.reshape(len(y), -1).double().cpu() for value in values)


def _regression(found: list[Tensor], scale: Tensor | None) -> RegressionRecord:
    mean, spread, y, log_prob, *cdf = in_units(found, scale)
    scores = {
        "rmse": metrics.rmse(mean, y),
        "log_likelihood": metrics.log_likelihood(log_prob),
        **{f"coverage_{100 * level:.0f}": metrics.coverage(values, level) for values in cdf for level in LEVELS},
    }
    return RegressionRecord(mean, spread, y, scores=scores)


def in_units(found: list[Tensor], scale: Tensor | None) -> list[Tensor]:
    """The columns of numbers (:func:`columns`) in the units of targets that were divided by this scale."""
    mean, spread, y, log_prob, *cdf = found
    unit = torch.ones(mean.shape[1], dtype=mean.dtype) if scale is None else scale.to(mean).expand(mean.shape[1])
    # the density of a target that is c times as large is c times as small
    return [mean * unit, spread * unit, y * unit, log_prob - unit.log(), *cdf]
