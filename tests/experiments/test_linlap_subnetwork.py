"""linlap-subnetwork: its verdicts fall either way, and its parts measure what they say."""

import pytest
import torch
from torch import nn

from experiments.linlap import subnetwork as subject
from experiments.linlap.subnetwork import (
    FULL,
    MODE,
    Images,
    Networks,
    Source,
    between,
    share,
    subnetwork,
    with_dropout,
)
from experiments.record import FAILS, HOLDS, UNTESTED

ROTATED = Images(Source("mnist", (), (0, 90, 180), 90), Networks("lenet"))


def toy(swag: float, random: float, bad: float, diagonal: tuple[float, float]) -> dict[tuple[str, str], float]:
    """Full: 0.3 between the clusters, 0.05 on the data; the diagonal as given; 10 % by SWAG keeps the inside too."""
    found = {(f"toy: {FULL}", subject.BETWEEN): 0.3, (f"toy: {FULL}", subject.INSIDE): 0.05}
    found |= dict(zip([("toy: diagonal", subject.BETWEEN), ("toy: diagonal", subject.INSIDE)], diagonal, strict=True))
    tenth = share("swag", 0.1)
    found |= {(f"toy: {tenth}", subject.BETWEEN): 0.3 * swag, (f"toy: {tenth}", subject.INSIDE): 0.05}
    kept = {"swag": swag, "function_space": swag, "random": random, "magnitude": 0.6, "diag_variance": bad}
    return found | {(f"toy: {share(name, 0.1)}", subject.KEPT): value for name, value in kept.items()}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (toy(0.8, 0.4, 0.0, (0.35, 0.34)), [HOLDS, HOLDS, HOLDS, HOLDS, HOLDS, FAILS]),
        (toy(0.6, 0.6, 0.9, (0.35, 0.06)), [FAILS, FAILS, FAILS, FAILS, FAILS, HOLDS]),
        ({}, [UNTESTED] * 6),
    ],
)
def test_verdicts_of_the_toy(found: dict[tuple[str, str], float], expected: list[str]) -> None:
    claims = list(subject.toy_claims(found, [True, False]))
    assert [claim.verdict for claim in claims] == expected
    assert "1 of 2 runs" in claims[-1].evidence


def image(ours: float, change: float, diagonal: float, rival: float) -> dict[tuple[str, str], float]:
    nll = {
        MODE: 5.0,
        subnetwork(0.05): ours,
        "diagonal": diagonal,
        "MC dropout": rival,
        "deep ensemble": 2.0,
        "SWAG": 2.5,
    }
    found = {(f"rotated MNIST: {row}", "NLL, 90° to 180°"): value for row, value in nll.items()}
    accuracy = {MODE: 96.8, subnetwork(0.05): 96.8 + change}
    return found | {(f"rotated MNIST: {row}", "accuracy, %, 0°"): value for row, value in accuracy.items()}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (image(4.0, -0.2, 4.5, 4.1), [HOLDS, HOLDS, HOLDS, HOLDS]),
        (image(4.8, 0.3, 4.5, 4.1), [FAILS, FAILS, FAILS, FAILS]),
        ({}, [UNTESTED] * 4),
    ],
)
def test_verdicts_of_the_images(found: dict[tuple[str, str], float], expected: list[str]) -> None:
    assert [claim.verdict for claim in subject.image_claims(found, ROTATED)] == expected


def test_between_is_within_the_two_largest_gaps() -> None:
    x = torch.tensor([3.0, 0.0, 0.1, 1.1, 1.2, 3.1])[:, None]  # gaps of 1.0 and of 1.8
    found = between(x).flatten()
    low, high = found[found < 1.15], found[found > 1.15]
    assert [float(part) for part in (low.min(), low.max(), high.min(), high.max())] == pytest.approx(
        [0.2, 1.0, 1.38, 2.82]
    )


def test_dropout_follows_each_activation_of_a_copy() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    dropping = with_dropout(model, 0.3)
    assert [type(layer) for layer in dropping] == [nn.Linear, nn.ReLU, nn.Dropout, nn.Linear]
    assert dropping[0].weight is not model[0].weight
    assert torch.equal(dropping.eval()(torch.ones(1, 2)), model(torch.ones(1, 2)))
