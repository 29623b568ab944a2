"""UCI and MacKay's example: cases that are named, exact claims, and splits that go on where they were interrupted."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import osculate as osc
from experiments import Runner
from experiments.linlap import mackay as linlap_mackay, uci
from experiments.linlap.stated import WIDTHS
from experiments.linlap.uci import DROPOUT, FULL, MAP
from experiments.record import FAILS, HOLDS, Findings, Number
from tests.experiments.limits import verdicts


def test_sets_are_compared_on_the_splits_that_have_both() -> None:
    found = {"wine": {FULL: [1.0, 3.0, -100.0], DROPOUT: [2.0, 3.0]}, "yacht": {FULL: [2.0]}, "diabetes": {FULL: [0.0]}}
    assert uci.worse_on(found, FULL, DROPOUT) == "wine (by 0.5)"
    assert uci.worse_on(found, DROPOUT, FULL) == uci.worse_on(found, FULL, MAP) == "no set"
    assert uci.behind(found, uci.PUBLISHED) == "wine"
    evidence = [claim.evidence for claim in (*uci.claims(found), *uci.gap_claims(found))]
    assert "trained here is ahead of it on wine (by 0.5)." in evidence[2]
    assert evidence[4].startswith("Median over gaps: not measured")


def test_an_interrupted_run_goes_on_with_the_next_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(
        uci.Settings(("boston",), uci.Splits(4, 1, 1), steps=uci.Steps((1,)), cells=str(tmp_path)),
        baseline=uci.Baseline(splits=uci.Splits(0, 0, 0)),
    )
    asked: list[int] = []

    def cell(
        settings: uci.Settings, name: str, splits: str, split: int, seed: int, steps: Mapping[str, int]
    ) -> dict[str, float]:
        asked.append(split)
        time.sleep(0.05)
        if asked == [0, 1, 2]:
            raise KeyboardInterrupt
        return {MAP: float(split)}

    monkeypatch.setattr(uci, "cell", cell)
    with pytest.raises(KeyboardInterrupt):
        uci.measure_cells(settings, "standard", [0], Runner(settings.cells))
    runner = Runner(settings.cells)
    found = uci.measure_cells(settings, "standard", [0], runner)
    assert found == {"boston": {MAP: [0.0, 1.0, 2.0, 3.0], uci.STEPS: [1.0] * 4, uci.STEPS_MAP: [1.0] * 4}}
    assert asked == [0, 1, 2, 2, 3]
    assert runner.seconds > 0.1  # those of the interrupted run too
    changed = replace(settings, steps=uci.Steps((2,)))
    uci.measure_cells(changed, "standard", [0], runner)
    assert asked[5:] == [0, 1, 2, 3]


def test_gaps_that_are_none_or_repeat_another_are_left_out() -> None:
    every = uci.Settings(splits=uci.Splits(20, 20, 20))
    assert uci.chosen(every, "gap", "naval") == [0, 7, 14, 15]
    assert uci.chosen(every, "standard", "protein") == list(range(5))
    assert uci.chosen(uci.Settings(), "standard", "boston") == list(range(20))


@pytest.mark.parametrize("name", ["boston", "energy", "naval", "yacht"])
def test_gaps_that_are_measured_leave_out_different_rows(name: str, data_folder: Path) -> None:
    every = uci.Settings(splits=uci.Splits(20, 20, 20))
    splits = uci.chosen(every, "gap", name)
    masks = np.load(data_folder / f"uci_regression/{name}.npz")["gap_test_mask"][splits]
    assert len(np.unique(masks, axis=0)) == len(splits) - (name == "energy")


def test_steps_are_those_that_held_out_data_like_best(monkeypatch: pytest.MonkeyPatch) -> None:
    full = {0: {3: 1.0, 5: 2.0}, 1: {3: 1.0, 5: -9.0}, 2: {3: 0.0, 5: 5.0}}

    def validation(
        settings: uci.Settings, ways: Sequence[str], name: str, splits: str, split: int, seed: int
    ) -> dict[str, float]:
        likes = {way: full[split] if way == FULL else {3: 0.0, 5: 1.0} for way in ways}
        return {uci.after(way, steps): value for way, each in likes.items() for steps, value in each.items()}

    monkeypatch.setattr(uci, "validation", validation)
    settings = uci.Settings(steps=uci.Steps((3, 5)))
    found = uci.validated_steps(settings, uci.OF_ONE_MODE, "yacht", "gap", 0, uci.Runner(""))
    assert (found[FULL], found[MAP]) == (3, 5)
    one = replace(settings, steps=uci.Steps((3, 5), splits=1))
    assert uci.validated_steps(one, uci.OF_ONE_MODE, "yacht", "gap", 0, uci.Runner(""))[FULL] == 5


def test_the_test_part_has_no_say_in_the_steps(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = uci.Settings(steps=uci.Steps((2, 6)), hidden=5)
    ways = (*uci.OF_ONE_MODE, uci.ENSEMBLE)
    found = {way: uci.validation(settings, (way,), "yacht", "standard", 0, 0) for way in ways}
    data = osc.data.load("yacht", split=0, validation_size=0)
    spoilt = replace(data, test=(data.test[0], data.test[1] + 100))
    monkeypatch.setattr(osc.data, "load", lambda *_, **__: spoilt)
    for way in ways:
        assert uci.validation(settings, (way,), "yacht", "standard", 0, 0) == found[way]
        assert set(found[way]) == {uci.after(way, steps) for steps in (2, 6)}


def test_a_split_of_yacht_in_original_units(data_folder: Path) -> None:
    found = uci.cell(uci.Settings(hidden=10), "yacht", "gap", 0, 0, {**dict.fromkeys(uci.OF_ONE_MODE, 8), uci.KRON: 4})
    assert set(found) == {way for w in uci.OF_ONE_MODE for way in (w, uci.rmse(w))} | {uci.GAMMA, uci.SECONDS}
    assert found[uci.rmse(FULL)] == pytest.approx(found[uci.rmse(MAP)])
    assert found[uci.rmse(uci.KRON)] != pytest.approx(found[uci.rmse(MAP)])
    assert 0.1 < found[uci.rmse(MAP)] < 15.2  # the standard deviation of the targets


def mackay(gamma: float, negative: float, check: float) -> Mapping[str, Mapping[str, list[float]]]:
    m = linlap_mackay
    row = {m.GAMMA: gamma, m.SIZE: 10.0, m.EVIDENCE: -9.0, m.NEGATIVE: negative, m.FIXED: check, m.SLOPE: check}
    return {width: {name: [value] * 2 for name, value in row.items()} for width in WIDTHS}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (mackay(4.0, 2.0, 1e-6), [HOLDS] * 4),
        (mackay(20.0, 0.0, 1e-2), [FAILS] * 4),
        (mackay(-1.0, 2.0, 5e-4), [HOLDS, FAILS, HOLDS, FAILS]),
    ],
)
def test_exact_claims_of_mackays_example(values: Mapping[str, Mapping[str, list[float]]], expected: list[str]) -> None:
    numbers = tuple(
        Number(row, column, tuple(found)) for row, cells in values.items() for column, found in cells.items()
    )
    findings = Findings(numbers, linlap_mackay.claims(values))
    assert verdicts("linlap-mackay", findings) == expected
    assert "indefinite in 10 of 10 networks" in findings.claims[2].evidence


def test_a_wrong_derivative_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = linlap_mackay.Settings(data=12, steps=5)
    toy = linlap_mackay.Toy.drawn(settings, 0)
    q, _ = linlap_mackay.trained(settings, toy, 3, 0, regularised=True)
    assert linlap_mackay.slope(q) < 1e-6
    assert linlap_mackay.fixed_point(q) > 1e-3  # five steps are no fixed point
    right = osc.log_evidence
    monkeypatch.setattr(osc, "log_evidence", lambda q: right(q) + (q.prior.precision.sum().detach() * 0.1))
    assert linlap_mackay.slope(q) > 1e-3


def test_the_sine_is_zero_where_it_crosses() -> None:
    assert torch.equal(linlap_mackay.sine(torch.tensor([-0.25])), torch.tensor([0.0]))
