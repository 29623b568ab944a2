"""Active learning and sensitivity: the rule that is chosen, the copies of a pool, and shares of a patch."""

import numpy as np
import pytest
import torch

from experiments.functions import active, sensitivity
from osculate.data import load

LABELS = [10, 20, 30, 40]
SLOW = [[0.5, 0.6, 0.7, 0.8], [0.5, 0.6, 0.7, 0.8]]


def curve(*values: float) -> list[list[float]]:
    return [list(values), list(values)]


def test_labels_needed_are_those_from_which_on_the_accuracy_is_reached() -> None:
    rules = {
        active.RANDOM: SLOW,
        "a": curve(0.5, 0.85, 0.7, 0.9),
        "b": curve(0.9, 0.9, 0.9, 0.9),
        "c": curve(*[0.7] * 4),
    }
    assert active.labels_needed(LABELS, rules) == {active.RANDOM: 40, "a": 40, "b": 10, "c": None}


def test_the_rule_is_chosen_on_the_first_pool() -> None:
    first = {active.RANDOM: SLOW, "a": curve(0.5, 0.9, 0.9, 0.9), "b": curve(*[0.5] * 4)}
    second = {active.RANDOM: SLOW, "a": curve(0.5, 0.8, 0.8, 0.9), "b": curve(*[0.5] * 4)}
    (found,) = active.claims({"digits": first, "other": second}, LABELS)
    assert found.text == "labels needed"
    assert "Chosen: a (digits: 20 labels)" in found.evidence
    assert "40 (random), 20 (a), not reached (b)" in found.evidence


def test_copies_differ_by_noise_and_keep_their_labels() -> None:
    data = load("digits", train_size=20)
    x, y = active.with_copies(data, 3, 0)
    assert x.shape == (60, 1, 8, 8)
    assert torch.equal(y, data.train[1].repeat(3))
    assert float((x - data.train[0].repeat(3, 1, 1, 1)).std()) == pytest.approx(0.1, rel=0.05)


def test_the_share_is_the_mean_over_images() -> None:
    values = torch.tensor(np.arange(8.0).reshape(2, 1, 2, 2))
    inside = torch.zeros(2, 1, 2, 2, dtype=torch.bool)
    inside[:, :, 0, 1] = True
    assert sensitivity.share(values, inside) == pytest.approx((1 / 6 + 5 / 22) / 2)
