"""Cases of linlap-adapted are counted, rescaled networks compute the same function, and validation images stop."""

from dataclasses import replace

import pytest
import torch

import osculate as osc
from experiments import Table
from experiments.linlap import adapted as m, stopping


def test_architectures_that_are_worse_at_the_linear_mode_are_named() -> None:
    table = Table()
    for name, values in {"CNN": (0.2, 0.1, 0.4, 0.3), "ResNet": (0.2, 0.35, 0.4, 0.3)}.items():
        table.add(name, {m.nll(*way): v for way, v in zip(m.WAYS, values, strict=True)})
    evidence = {claim.text: claim.evidence for claim in m.claims(table, ["CNN", "ResNet"], 2)}
    assert "higher in ResNet, multiple λ. 2 of the searches" in evidence["evidence at θ* and at θ̃"]
    assert "higher in no case. 0 of" in list(m.claims(table, ["CNN"], 0))[2].evidence


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


@pytest.mark.slow
def test_validation_images_say_when_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    few = stopping.Settings(m.Images(data="digits", train_size=60, test_size=20, names=("CNN",), pool=1), (1, 2))
    data, nll = osc.data.load("digits", train_size=60), stopping.NLL
    found = stopping.courses(few, 0)[nll]
    spoilt = replace(data, test=(data.test[0], data.test[1].flip(0)))
    monkeypatch.setattr(osc.data, "load", lambda *_, **__: spoilt)
    assert stopping.courses(few, 0)[nll] == found
    other = replace(data, validation=(data.validation[0], data.validation[1].flip(0)))
    monkeypatch.setattr(osc.data, "load", lambda *_, **__: other)
    assert stopping.courses(few, 0)[nll] != found
