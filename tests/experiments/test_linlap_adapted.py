"""The verdicts of linlap-adapted fall either way, and rescaled networks compute the same function."""

import pytest
import torch

from experiments import Table
from experiments.linlap import adapted as m
from experiments.record import FAILS, HOLDS


def toy(*seeds: tuple[float, float, float, float]) -> Table:
    """Ratio of variances, gain on the grid, and relative changes with a single and with multiple precisions."""
    single, multiple, network = (m.toy_row(*way) for way in ((m.LINEAR, m.SINGLE), (m.LINEAR, m.MULTIPLE), m.WAYS[2]))
    table, change = Table(), m.change(m.Toy())
    for ratio, gain, single_change, multiple_change in seeds:
        table.add(single, {m.VARIANCE: 1.0, m.LIKELIHOOD: gain, change: single_change})
        table.add(network, {m.VARIANCE: ratio, m.LIKELIHOOD: 0.0})
        table.add(multiple, {change: multiple_change})
    return table


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
    claims = list(m.toy_claims(toy((9.0, 0.4, 0.6, 1e-5), values), m.Toy()))
    assert [claim.verdict for claim in claims] == expected


def scores(*nll: float, alone: float = 1.0) -> dict[str, float]:
    of_own = (m.nll(m.FULL, kind) for kind in (m.SINGLE, m.MULTIPLE))
    return {
        m.ALONE: alone,
        **dict.fromkeys(of_own, 0.3),
        **{m.nll(*way): v for way, v in zip(m.WAYS, nll, strict=True)},
    }


def test_every_architecture_has_to_be_better_at_the_linear_mode() -> None:
    table = Table()
    table.add("CNN", scores(0.2, 0.1, 0.4, 0.3))
    assert [claim.verdict for claim in m.image_claims(table, ["CNN"], 0)] == [HOLDS, HOLDS, HOLDS]
    table.add("ResNet", scores(0.2, 0.35, 0.4, 0.3, alone=0.1))
    found = list(m.image_claims(table, ["CNN", "ResNet"], 2))
    assert [claim.verdict for claim in found] == [FAILS, FAILS, FAILS]
    assert "It does not for ResNet, multiple λ. 2 of the searches" in found[0].evidence


def test_a_rescaled_network_computes_the_same_function() -> None:
    x, y = m.drawn(30, torch.Generator().manual_seed(0))
    model = m.trained(m.Toy(hidden=4, epochs=2), x, y)
    for factor in (0.25, 4.0):
        assert torch.allclose(m.rescaled(model, factor)(x), model(x), rtol=1e-10)
    assert m.relative_change([1.0, 3.0, 2.0]) == 1.0


@pytest.mark.parametrize("name", m.ARCHITECTURES)
def test_architectures_have_about_45_000_weights_and_groups(name: str) -> None:
    model = m.ARCHITECTURES[name](28, 2)
    assert 41_000 < sum(p.numel() for p in model.parameters()) < 48_000
    groups = m.prior_of(model, torch.rand(2, 1, 28, 28), m.MULTIPLE).settings["groups"]
    assert len(groups) > 1
    assert ("unnormalised" in groups) == (name != "Fixup")
