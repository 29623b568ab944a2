"""Metrics: against their definitions, and at the edges."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.metrics import roc_auc_score

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
        (lambda: metrics.coverage(PROBS, 95.0), ["95.0", "0.9"]),
    ],
)
def test_what_has_no_value_is_refused(call: Callable[[], float], words: list[str]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        call()
