"""Metrics: against their definitions, and at the edges."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from osculate import metrics
from tests.errors import says


def predictions(n: int = 200, classes: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    probs = (2 * torch.randn(n, classes, generator=generator)).softmax(-1)
    return probs, torch.randint(classes, (n,), generator=generator)


def bins_by_hand(probs: torch.Tensor, targets: torch.Tensor, bins: int) -> list[tuple[float, float]]:
    """(weight, |accuracy - confidence|) of each bin that holds something."""
    confidence, predicted = probs.max(-1)
    found = []
    for b in range(bins):
        inside = (confidence > b / bins) & (confidence <= (b + 1) / bins)
        if inside.any():
            gap = (predicted == targets)[inside].float().mean() - confidence[inside].mean()
            found.append((float(inside.float().mean()), abs(float(gap))))
    return found


@pytest.mark.parametrize("bins", [5, 15])
def test_calibration_errors_follow_their_definitions(bins: int) -> None:
    probs, targets = predictions()
    found = bins_by_hand(probs, targets, bins)
    assert metrics.ece(probs, targets, bins) == pytest.approx(sum(w * g for w, g in found), abs=1e-5)
    assert metrics.mce(probs, targets, bins) == pytest.approx(max(g for _, g in found), abs=1e-5)
    rms = math.sqrt(sum(w * g**2 for w, g in found))
    assert metrics.rmsce(probs, targets, bins) == pytest.approx(rms, abs=1e-5)


def test_fifteen_bins_unless_said_otherwise() -> None:
    probs, targets = predictions()
    assert metrics.ece(probs, targets) == metrics.ece(probs, targets, 15) != metrics.ece(probs, targets, 5)


def test_rounding_above_one_does_not_turn_probabilities_into_logits() -> None:
    probs = torch.tensor([[1.0000001, 0.0], [0.0, 1.0]])
    assert metrics.ece(probs, torch.tensor([0, 1])) == pytest.approx(0, abs=1e-6)


def test_predictions_drawn_from_their_own_probabilities_are_calibrated() -> None:
    probs, _ = predictions(20_000)
    targets = torch.multinomial(probs, 1, generator=torch.Generator().manual_seed(1))[:, 0]
    assert metrics.ece(probs, targets) < 0.02
    assert metrics.ece(probs, (targets + 1) % 4) > 0.2, "wrong ones are not"


def test_accuracy_nll_and_brier_by_hand() -> None:
    probs = torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]])
    targets = torch.tensor([0, 1])
    assert metrics.accuracy(probs, targets) == 0.5
    assert metrics.nll(probs.log(), targets) == pytest.approx(-(math.log(0.7) + math.log(0.3)) / 2)
    assert metrics.brier(probs, targets) == pytest.approx((0.09 + 0.04 + 0.01 + 0.09 + 0.49 + 0.16) / 2)


@pytest.mark.parametrize(("dtype", "nats"), [(torch.float32, 87.34), (torch.float64, 708.40)])
def test_a_probability_of_zero_is_a_large_number(dtype: torch.dtype, nats: float) -> None:
    log_probs = torch.tensor([[1.0, 0.0]], dtype=dtype).log()
    assert metrics.nll(log_probs, torch.tensor([1])) == pytest.approx(nats, abs=0.01)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.lists(st.integers(-3, 3), min_size=1, max_size=30))
def test_auroc_is_the_probability_that_outside_scores_higher(inside: list[int], outside: list[int]) -> None:
    a, b = torch.tensor(inside).float(), torch.tensor(outside).float()
    pairs = (b[:, None] > a).float() + 0.5 * (b[:, None] == a).float()
    assert metrics.auroc(a, b) == pytest.approx(float(pairs.mean()), abs=1e-6)


def test_auroc_of_huge_scores_is_that_of_small_ones() -> None:
    a, b = torch.randn(300), torch.randn(200) + 0.5
    expected = roc_auc_score([0] * 300 + [1] * 200, torch.cat([a, b]).tolist())
    for factor in (1e-6, 1.0, 1e6):  # a sigmoid would make large ones equal
        assert metrics.auroc(factor * a + factor, factor * b + factor) == pytest.approx(expected, abs=1e-3)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.lists(st.integers(-3, 3), min_size=1, max_size=30))
def test_auprc_is_the_mean_precision_at_the_scores_of_the_outside(inside: list[int], outside: list[int]) -> None:
    a, b = torch.tensor(inside).float(), torch.tensor(outside).float()
    expected = average_precision_score([0] * len(inside) + [1] * len(outside), inside + outside)
    precisions = [(b >= t).sum() / ((b >= t).sum() + (a >= t).sum()) for t in b]
    assert metrics.auprc(a, b) == pytest.approx(float(torch.stack(precisions).mean()), abs=1e-6)
    assert metrics.auprc(1e6 * a, 1e6 * b) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("curve", ["ties", "none"])
def test_the_area_under_the_roc_curve_is_the_auroc(curve: str) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = 2 * torch.randn(80, generator=generator), 2 * torch.randn(50, generator=generator) + 2
    if curve == "ties":
        a, b = a.round(), b.round()
    false_positives, true_positives = metrics.roc_curve(a, b)
    assert (float(false_positives[0]), float(true_positives[0])) == (0, 0)
    assert (float(false_positives[-1]), float(true_positives[-1])) == (1, 1)
    area = torch.trapezoid(true_positives, false_positives)
    assert float(area) == pytest.approx(metrics.auroc(a, b), abs=1e-5)
    share = (float((a >= 1).double().mean()), float((b >= 1).double().mean()))
    distance = (false_positives - share[0]).abs() + (true_positives - share[1]).abs()
    assert float(distance.min()) < 1e-6


@pytest.mark.parametrize(
    ("measure", "error"), [(metrics.auroc, metrics.auroc_error), (metrics.auprc, metrics.auprc_error)]
)
@pytest.mark.parametrize(("n", "m", "shift", "step"), [(150, 150, 0.5, 0.0), (60, 250, 0.0, 0.0), (200, 100, 1.0, 0.5)])
def test_standard_errors_are_the_spread_over_repeated_draws(
    measure: Callable[..., float], error: Callable[..., float], n: int, m: int, shift: float, step: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    values, errors = [], []
    for _ in range(400):
        a, b = torch.randn(n, generator=generator), 1.3 * torch.randn(m, generator=generator) + shift
        if step:  # with ties
            a, b = (a / step).round(), (b / step).round()
        values.append(measure(a, b))
        errors.append(error(a, b))
    assert sum(errors) / len(errors) == pytest.approx(float(torch.tensor(values).std()), rel=0.12)


def test_the_error_of_auroc_is_that_of_delong_over_all_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (
        torch.randint(9, (40,), generator=generator).float(),
        torch.randint(4, 12, (25,), generator=generator).float(),
    )
    wins = (b > a[:, None]).double() + (b == a[:, None]).double() / 2
    expected = (wins.mean(1).var() / 40 + wins.mean(0).var() / 25).sqrt()
    assert metrics.auroc_error(a, b) == pytest.approx(float(expected), rel=1e-9)


def test_the_error_of_auprc_is_that_of_the_jackknife() -> None:
    """Deleting one input at a time, the class sizes weighted as before: first order in 1/N."""
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(400, generator=generator), torch.randn(400, generator=generator) + 1

    def area(keep_a: torch.Tensor, keep_b: torch.Tensor) -> torch.Tensor:
        inside, outside = a[keep_a], b[keep_b]
        g = (outside >= outside[:, None]).double().mean(1)
        f = (inside >= outside[:, None]).double().mean(1)
        return (g / (g + f)).mean()  # equal shares

    every = torch.ones(400, dtype=torch.bool)
    variance = 0.0
    for which in range(2):
        left = []
        for i in range(400):
            keep = every.clone()
            keep[i] = False
            left.append(area(*((keep, every) if which == 0 else (every, keep))))
        variance += float(torch.stack(left).var(correction=0)) * 399
    assert metrics.auprc_error(a, b) == pytest.approx(math.sqrt(variance), rel=0.02)


def test_one_input_says_nothing_about_the_spread() -> None:
    for error in (metrics.auroc_error, metrics.auprc_error):
        assert math.isnan(error(torch.zeros(1), torch.ones(5)))
        assert error(torch.zeros(4), torch.ones(5)) == 0


def test_regression_metrics_by_hand() -> None:
    mean, y = torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.tensor([[0.0, 2.0], [2.0, 1.0]])
    assert metrics.rmse(mean, y) == pytest.approx(math.sqrt(5 / 4))
    assert metrics.log_likelihood(torch.tensor([[1.0, 2.0], [3.0, 4.0]])) == 5.0
    assert metrics.log_likelihood(torch.tensor([1.0, 2.0])) == 1.5


def test_a_calibrated_normal_covers_what_it_should() -> None:
    normal = torch.distributions.Normal(2.0, 3.0)
    y = normal.sample(torch.Size([20_000, 1]))
    for level in (0.5, 0.9, 0.95):
        assert metrics.coverage(normal.cdf(y), level) == pytest.approx(level, abs=0.012)
        assert metrics.coverage(torch.distributions.Normal(2.0, 1.0).cdf(y), level) < level - 0.15


PROBS, TARGETS = predictions(5, 3)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics._check(PROBS, TARGETS[:4]), ["5 predictions", "4 targets"]),
        (lambda: metrics.accuracy(PROBS[:0], TARGETS[:0]), ["0 predictions"]),
        (lambda: metrics.brier(3 * PROBS, TARGETS), ["row 0", "3,", "logits"]),
        (lambda: metrics.ece(PROBS * torch.tensor(float("nan")), TARGETS), ["row 0", "nan"]),
        (lambda: metrics.nll(PROBS, TARGETS), ["row 0", "sum to"]),
        (lambda: metrics.accuracy(PROBS, TARGETS + 5), ["3 classes"]),
        (lambda: metrics.accuracy(PROBS, TARGETS - 5), ["-", "3 classes"]),
        (lambda: metrics.ece(PROBS, TARGETS, 0), ["0"]),
        (lambda: metrics.auroc(PROBS[:0, 0], PROBS[:, 0]), ["inside"]),
        (lambda: metrics.auroc(PROBS[:, 0], PROBS[:, 0] / 0), ["outside", "inf"]),
        (lambda: metrics.auprc(PROBS[:0, 0], PROBS[:, 0]), ["inside"]),
        (lambda: metrics.roc_curve(PROBS[:, 0], PROBS[:0, 0]), ["outside"]),
        (lambda: metrics.auroc_error(PROBS[:, 0] / 0, PROBS[:, 0]), ["inside", "inf"]),
        (lambda: metrics.auprc_error(PROBS[:, 0], PROBS[:0, 0]), ["outside"]),
        (lambda: metrics.coverage(PROBS, 95.0), ["95.0", "0.9"]),
    ],
)
def test_what_has_no_value_is_refused(call: Callable[[], float], words: list[str]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        call()
