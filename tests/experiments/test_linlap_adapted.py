"""The verdicts of linlap-adapted fall either way, and rescaled networks compute the same function."""

import pytest
import torch

from experiments.linlap.adapted import WAYS, image_claims, toy_claims
from experiments.linlap.adapted_images import ARCHITECTURES, Scores, prior_of
from experiments.linlap.adapted_toy import (
    LINEAR,
    MULTIPLE,
    NETWORK,
    SINGLE,
    Curves,
    Toy,
    drawn,
    relative_change,
    rescaled,
    trained,
)
from experiments.record import FAILS, HOLDS


def curves(ratio: float, gain: float, single: float, multiple: float) -> Curves:
    grid = {(mode, prior): gain if mode == LINEAR else 0.0 for mode, prior in WAYS}
    deviation = {SINGLE: [1.0, 1.0 + single], MULTIPLE: [1.0, 1.0 + multiple]}
    return Curves({NETWORK: ratio, LINEAR: 1.0}, dict.fromkeys(WAYS, 0.25), grid, deviation, {}, {})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((9.0, 0.4, 0.6, 1e-5), [HOLDS, HOLDS, HOLDS]),
        ((2.9, 0.4, 0.6, 1e-5), [FAILS, HOLDS, HOLDS]),
        ((9.0, 0.05, 0.6, 1e-5), [HOLDS, FAILS, HOLDS]),
        ((9.0, 0.4, 0.6, 1e-2), [HOLDS, HOLDS, FAILS]),
        ((9.0, 0.4, 0.1, 1e-5), [HOLDS, HOLDS, FAILS]),
    ],
)
def test_one_seed_that_fails_is_enough(values: tuple[float, ...], expected: list[str]) -> None:
    good = curves(9.0, 0.4, 0.6, 1e-5)
    assert [claim.verdict for claim in toy_claims([good, curves(*values)])] == expected


def scores(*nll: float, alone: float = 1.0) -> list[Scores]:
    return [Scores(alone, dict(zip(WAYS, nll, strict=True)), dict.fromkeys(WAYS, 1.0), 10, 0)]


def test_every_architecture_has_to_be_better_at_the_linear_mode() -> None:
    good, bad = scores(0.2, 0.1, 0.4, 0.3), scores(0.2, 0.35, 0.4, 0.3, alone=0.1)
    assert [claim.verdict for claim in image_claims({"CNN": good})] == [HOLDS, HOLDS, HOLDS]
    found = image_claims({"CNN": good, "ResNet": bad})
    assert [claim.verdict for claim in found] == [FAILS, FAILS, FAILS]
    assert "It does not for ResNet, multiple λ" in found[0].evidence


def test_a_rescaled_network_computes_the_same_function() -> None:
    x, y = drawn(30, torch.Generator().manual_seed(0))
    model = trained(Toy(hidden=4, epochs=2), x, y)
    for factor in (0.25, 4.0):
        assert torch.allclose(rescaled(model, factor)(x), model(x), rtol=1e-10)
    assert relative_change([1.0, 3.0, 2.0]) == 1.0


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures_have_about_45_000_weights_and_groups(name: str) -> None:
    model = ARCHITECTURES[name](28, 2)
    assert 41_000 < sum(p.numel() for p in model.parameters()) < 48_000
    groups = prior_of(model, torch.rand(2, 1, 28, 28), MULTIPLE).settings["groups"]
    assert len(groups) > 1
    assert ("unnormalised" in groups) == (name != "Fixup")
