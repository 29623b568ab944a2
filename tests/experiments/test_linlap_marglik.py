"""Verdicts on the online marginal likelihood can fall either way, and the settings name rows that exist."""

from typing import Any

import pytest

import osculate as osc
from experiments import Runner
from experiments.linlap import marglik as linlap_marglik
from experiments.linlap.marglik import ERROR, GAIN, ROWS, claims
from experiments.record import FAILS, HOLDS, UNTESTED


def table(gain: float, accuracies: tuple[float, float]) -> dict[tuple[str, str], list[float]]:
    row = "MNIST, MLP"
    return {
        (row, "cross-validation: accuracy in %"): [accuracies[0]],
        (row, "marginal likelihood: accuracy in %"): [accuracies[1]],
        (row, GAIN): [gain],
        (row, ERROR): [0.01],
    }


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


ALIKE = starts({"0.1": 1.0, "10": 1.3}, {"0.1": 0.2, "10": 0.205})
APART = starts({"0.1": 1.0, "10": 2.0}, {"0.1": 0.2, "10": 0.3}, gradient=0.1)


@pytest.mark.parametrize(
    ("found", "courses", "expected"),
    [
        (table(0.05, (98.0, 98.5)), ALIKE, [HOLDS, HOLDS, HOLDS, HOLDS, HOLDS]),
        (table(0.015, (98.0, 97.0)), APART, [FAILS, FAILS, FAILS, FAILS, FAILS]),
        ({}, starts({"1": 1.0}, {"1": 0.2}), [UNTESTED, UNTESTED, UNTESTED, HOLDS, HOLDS]),
    ],
)
def test_verdicts(found: dict, courses: dict[str, Any], expected: list[str]) -> None:
    assert [claim.verdict for claim in claims(found, courses)] == expected


def test_the_evidence_names_the_tensor_that_agrees_least() -> None:
    text = list(claims({}, APART))[2].evidence
    assert "1 of 2 parameter tensors" in text
    assert "0.69 (w)" in text


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
    monkeypatch.setattr(linlap_marglik, "from_starts", lambda *_: ALIKE)
    findings = linlap_marglik.measure.measure(settings, [0], Runner())
    assert findings.data["absent"] == ["CIFAR-10, ResNet"]
    assert findings.claims[0].verdict == UNTESTED
