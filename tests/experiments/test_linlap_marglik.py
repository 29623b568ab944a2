"""Evidence on the online marginal likelihood names what agrees least, and the settings name rows that exist."""

from typing import Any

import pytest

import osculate as osc
from experiments import Runner
from experiments.linlap import marglik as linlap_marglik
from experiments.linlap.marglik import ROWS, claims


def starts(learned: dict[str, float], nlls: dict[str, float], gradient: float = 0.2) -> dict[str, Any]:
    def course(initial: float, precision: float, nll: float) -> dict[str, Any]:
        return {
            "initial": initial,
            "epochs": [2, 4],
            "log_evidence": [-2.0, -1.0],
            "effective_parameters": 9.0,
            "precisions": {"w": [1.0, precision], "b": [2.0, 2.0]},
            "learned": {"w": precision, "b": 2.0},
            "test": nll,
        }

    runs = {name: course(float(name), learned[name], nlls[name]) for name in learned}
    runs["burn-in of one epoch"] = course(1e4, 1.0, 2.3)
    runs["by gradient"] = course(float(next(iter(learned))), 1.0, gradient)
    grid = [{"precision": 1.0, "validation": 0.3, "test": 0.2}, {"precision": 10.0, "validation": 0.31, "test": 0.25}]
    return {"row": "MNIST, CNN", "images": 10_000, "courses": runs, "grid": grid}


APART = starts({"0.1": 1.0, "10": 2.0}, {"0.1": 0.2, "10": 0.3}, gradient=0.1)


def test_the_evidence_names_the_tensor_that_agrees_least() -> None:
    evidence = {claim.text: claim.evidence for claim in claims(APART)}
    assert "by up to 0.69 (w, of 2 parameter tensors)" in evidence["dependence on the initial precision"]
    assert "0.2000 at precision 1" in evidence["test NLL beside a grid of precisions"]


def test_rows_of_the_presets_exist_and_data_that_are_missing_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for settings in linlap_marglik.measure.presets.values():
        assert set(settings.rows) | {settings.starts.row} <= set(ROWS)
        assert len(settings.grid) == 8
    settings = linlap_marglik.Settings(
        rows=("CIFAR-10, ResNet",), train_size=30, starts=linlap_marglik.Starts("digits, CNN", train_size=30)
    )
    load = osc.data.load

    def nowhere(name: str, **options: Any) -> Any:
        if name == "cifar10":
            raise FileNotFoundError(name)
        return load(name, **options)

    monkeypatch.setattr(osc.data, "load", nowhere)
    monkeypatch.setattr(linlap_marglik, "from_starts", lambda *_: APART)
    findings = linlap_marglik.measure.measure(settings, [0], Runner())
    assert findings.data["absent"] == ["CIFAR-10, ResNet"]
