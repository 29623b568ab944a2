"""Scores of predictions: for classification, for error bars, and for out-of-distribution detection.

Thin over torchmetrics, with the conventions of this package stated. Every function takes tensors and returns
a float.
"""

import math
from types import ModuleType
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from osculate.checks import require_library

#: The usual number of bins of equal width (Guo et al. 2017).
BINS = 15


def accuracy(probs: Float[Tensor, "N C"], targets: Int[Tensor, " N"]) -> float:
    """Share of points whose most probable class is the right one.

    >>> accuracy(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1]))
    0.5
    """
    _check(probs, targets)
    return float((probs.argmax(-1) == targets).double().mean())


def nll(log_probs: Float[Tensor, "N C"], targets: Int[Tensor, " N"]) -> float:
    """Mean negative log-likelihood in nats, -1/N Σ log p(y_n|x_n).

    A probability of 0 on the right class has no logarithm. It counts as the smallest positive normal number
    of its dtype: 87.3 nats in float32, 708.4 in float64. One such point raises the mean without making it infinite.

    Args:
        log_probs: Logarithms of the probabilities, normalised.
        targets: The right classes.

    >>> round(nll(torch.tensor([[0.5, 0.5], [1.0, 0.0]]).log(), torch.tensor([0, 1])), 3)
    44.015
    """
    _check(log_probs.exp(), targets)
    floor = torch.tensor(torch.finfo(log_probs.dtype).tiny, dtype=torch.float64).log()
    right = log_probs.gather(-1, targets[:, None]).double()
    return float(-right.clamp(min=floor).mean())


def brier(probs: Float[Tensor, "N C"], targets: Int[Tensor, " N"]) -> float:
    """Brier score 1/N Σ_n Σ_c (p_nc - [y_n = c])², summed over classes: from 0 (perfect) to 2.

    This is Brier's definition (1950). Other definitions use the mean over the classes, or one class in the binary case.

    >>> brier(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    1.0
    """
    _check(probs, targets)
    right = torch.nn.functional.one_hot(targets, probs.shape[-1])
    return float((probs.double() - right).square().sum(-1).mean())


def ece(probs: Float[Tensor, "N C"], targets: Int[Tensor, " N"], bins: int = BINS) -> float:
    """Expected calibration error: |accuracy - confidence| of the top class, weighted by the bins' counts.

    Args:
        probs: Predicted probabilities.
        targets: The right classes.
        bins: Number of bins of equal width between 0 and 1. The value depends on it: report the two together.
    """
    return _calibration_error(probs, targets, bins, "l1")


def mce(probs: Float[Tensor, "N C"], targets: Int[Tensor, " N"], bins: int = BINS) -> float:
    """Maximum calibration error: the largest |accuracy - confidence| of any bin, however few points it has."""
    return _calibration_error(probs, targets, bins, "max")


def rmsce(probs: Float[Tensor, "N C"], targets: Int[Tensor, " N"], bins: int = BINS) -> float:
    """Root mean square calibration error: like :func:`ece` with squares, and a root at the end."""
    return _calibration_error(probs, targets, bins, "l2")


def auroc(inside: Float[Tensor, " N"], outside: Float[Tensor, " M"]) -> float:
    """Area under the ROC curve of a score that should be higher outside: P(s_out > s_in) + ½ P(s_out = s_in).

    Args:
        inside: Scores of in-distribution inputs.
        outside: Scores of out-of-distribution inputs.

    Raises:
        ValueError: a set is empty, or a score is not finite.

    >>> auroc(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0]))
    0.875
    """
    return min(1.0, float(_torchmetrics().binary_auroc(*_ranked(inside, outside))))  # single precision rounds up


def auroc_error(inside: Float[Tensor, " N"], outside: Float[Tensor, " M"]) -> float:
    r"""Standard error of :func:`auroc` over new draws of both sets. [delong1988]

    .. math:: \operatorname{var} = \tfrac1N \operatorname{var}_n P(s_{out} > s_n)
              + \tfrac1M \operatorname{var}_m P(s_{in} < s_m)

    with ties counted half. nan if a set has only one input; 0 if the sets are perfectly separated, where the estimate
    is not informative.

    Raises:
        ValueError: as :func:`auroc`.

    >>> round(auroc_error(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0])), 4)
    0.1768
    """
    ranks, labels = _ranked(inside, outside)
    ranks_in, ranks_out = ranks[labels == 0], ranks[labels == 1]
    return _combined(_below(ranks_out, ranks_in), _below(ranks_in, ranks_out))


def auprc(inside: Float[Tensor, " N"], outside: Float[Tensor, " M"]) -> float:
    r"""Area under the precision-recall curve, as average precision, with outside as the positive class.

    .. math:: \tfrac1M \textstyle\sum_m \frac{|\{out \ge s_m\}|}{|\{out \ge s_m\}| + |\{in \ge s_m\}|}

    Chance is M / (N + M), so that values for sets of different sizes are not comparable.

    Raises:
        ValueError: as :func:`auroc`.

    >>> round(auprc(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0])), 4)
    0.8333
    """
    return float(_torchmetrics().binary_average_precision(*_ranked(inside, outside)))


def auprc_error(inside: Float[Tensor, " N"], outside: Float[Tensor, " M"]) -> float:
    r"""Standard error of :func:`auprc` over new draws of both sets, with N and M fixed: the analogue of DeLong's.

    By the influence of each input, in closed form. With the shares F of inside and G of outside at or above a score,
    π = M / (N + M) and the precision p = π G / (π G + (1 - π) F),

    .. math:: \operatorname{var} = \tfrac1M \operatorname{var}_m
              \Big( p(s_m) + \operatorname{E}_{t \sim out} [t \le s_m]\, \tfrac{\partial p}{\partial G}(t) \Big)
              + \tfrac1N \operatorname{var}_n
              \Big( \operatorname{E}_{t \sim out} [t \le s_n]\, \tfrac{\partial p}{\partial F}(t) \Big)

    nan if a set has only one input.

    Raises:
        ValueError: as :func:`auroc`.

    >>> auprc_error(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 3.0]))
    0.0
    """
    ranks, labels = _ranked(inside, outside)
    level = ranks.unique(return_inverse=True)[1]
    size = int(level.max()) + 1
    g, f = (torch.bincount(level[labels == k], minlength=size).double() / int((labels == k).sum()) for k in (1, 0))
    above_out, above_in = (share.flip(0).cumsum(0).flip(0) for share in (g, f))
    positive = labels.double().mean()
    all_above = positive * above_out + (1 - positive) * above_in
    slope = g * positive * (1 - positive) / all_above.square()
    of_outside = positive * above_out / all_above + (slope * above_in).cumsum(0)
    of_inside = -(slope * above_out).cumsum(0)
    return _combined(of_inside[level[labels == 0]], of_outside[level[labels == 1]])


def roc_curve(
    inside: Float[Tensor, " N"], outside: Float[Tensor, " M"]
) -> tuple[Float[Tensor, " T"], Float[Tensor, " T"]]:
    """The ROC curve of a score that should be higher outside: false and true positive rates, from (0, 0) to (1, 1).

    Returns:
        The shares of inside and of outside at or above each score, from the highest.

    Raises:
        ValueError: as :func:`auroc`.

    >>> false_positives, true_positives = roc_curve(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0]))
    >>> false_positives.tolist(), true_positives.tolist()
    ([0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    false_positives, true_positives, _ = _torchmetrics().binary_roc(*_ranked(inside, outside))
    return false_positives, true_positives


def _torchmetrics() -> ModuleType:
    require_library("torchmetrics", "calibration errors and ROC curves")
    from torchmetrics.functional import classification

    return classification


def _ranked(inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
    """Scores in [0, 1] of the same order, and labels: 1 outside.

    torchmetrics squashes scores outside [0, 1] through a sigmoid, where large ones become equal; ranks keep the order.
    """
    for name, scores in (("inside", inside), ("outside", outside)):
        if not len(scores):
            raise ValueError(f"there are no {name} scores: a comparison needs two sets of at least one input each.")
        if not bool(scores.isfinite().all()):
            raise ValueError(
                f"an {name} score is {scores[~scores.isfinite()][0].item()}; only finite scores can be compared."
            )
    ranks = torch.cat([inside, outside]).unique(return_inverse=True)[1].double()
    labels = torch.cat([torch.zeros_like(inside), torch.ones_like(outside)]).long()
    return ranks / ranks.max().clamp(min=1), labels


def _below(these: Tensor, scores: Tensor) -> Tensor:
    """The share of these that lie below each score, ties counted half."""
    ordered = these.sort().values
    ends = [torch.searchsorted(ordered, scores, side=side) for side in ("left", "right")]
    return (ends[0] + ends[1]).double() / (2 * len(these))


def _combined(inside: Tensor, outside: Tensor) -> float:
    """The standard error of a sum of two independent means."""
    if min(len(inside), len(outside)) < 2:
        return math.nan
    return math.sqrt(float(inside.double().var()) / len(inside) + float(outside.double().var()) / len(outside))


def rmse(mean: Float[Tensor, "N C"], targets: Float[Tensor, "N C"]) -> float:
    """Root of the mean squared error over points and outputs.

    >>> round(rmse(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [4.0]])), 4)
    1.4142
    """
    return float((mean - targets).double().square().mean().sqrt())


def log_likelihood(log_probs: Float[Tensor, "N *C"]) -> float:
    """Mean log-likelihood of a point in nats: summed over its outputs, averaged over the points.

    Args:
        log_probs: Log p(y|x) of each point, or of each of its outputs where these are independent.
    """
    return float(log_probs.double().flatten(1).sum(1).mean()) if log_probs.ndim > 1 else float(log_probs.mean())


def coverage(cdf: Float[Tensor, "N *C"], level: float) -> float:
    """Share of targets inside the central interval that should hold ``level`` of them.

    Args:
        cdf: The predictive distribution function at the targets, F(y_n|x_n).
        level: Between 0 and 1; a calibrated predictive covers 0.9 of the targets with its 0.9 interval.

    Raises:
        ValueError: the level does not lie between 0 and 1.

    >>> coverage(torch.tensor([[0.5], [0.01]]), 0.9)
    0.5
    """
    if not 0 < level < 1:
        raise ValueError(f"the level of an interval must lie between 0 and 1, got {level}; 0.9 means 90 %.")
    return float(((cdf - 0.5).abs() <= level / 2).double().mean())


def _calibration_error(probs: Tensor, targets: Tensor, bins: int, norm: Literal["l1", "l2", "max"]) -> float:
    _check(probs, targets)
    if bins < 1:
        raise ValueError(f"a calibration error needs at least one bin, not {bins}.")
    # torchmetrics treats numbers outside [0, 1] as logits, and rounding can give probabilities of 1.0000001
    inside = probs.clamp(0, 1)
    return float(_torchmetrics().multiclass_calibration_error(inside, targets, probs.shape[-1], n_bins=bins, norm=norm))


def _check(probs: Tensor, targets: Tensor) -> None:
    """Raise ValueError for predictions or targets with which a score has no meaning."""
    if len(probs) != len(targets) or not len(targets):
        raise ValueError(f"{len(probs)} predictions and {len(targets)} targets: give each prediction one target.")
    sums = probs.detach().double().sum(-1)
    wrong = ~((sums - 1).abs() < 1e-3)  # written so that NaN is wrong
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise ValueError(
            f"the probabilities of row {row} sum to {sums[row].item():.4g}, not 1; pass softmax outputs, not logits."
        )
    if int(targets.min()) < 0 or int(targets.max()) >= probs.shape[-1]:
        worst = int(targets.min()) if int(targets.min()) < 0 else int(targets.max())
        raise ValueError(f"a target is {worst}, but there are {probs.shape[-1]} classes, numbered from 0.")
