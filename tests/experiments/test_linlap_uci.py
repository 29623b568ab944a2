"""UCI and MacKay's example: verdicts that fall either way, and splits that go on where they were interrupted."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import osculate as osc
from experiments import Runner
from experiments.linlap import mackay as linlap_mackay, uci
from experiments.linlap.uci import DIAG, DROPOUT, FULL, KRON, MAP, SAMPLED, Cells
from experiments.record import FAILS, HOLDS, UNTESTED, Claim


def verdicts(claims: Iterable[Claim]) -> list[str]:
    return [claim.verdict for claim in claims]


def standard(full: float, mode: float, sampled: float, others: float) -> Cells:
    ways = {FULL: full, MAP: mode, SAMPLED: sampled, KRON: others, DIAG: others}
    return {name: {way: [value, value] for way, value in ways.items()} for name in uci.NAMES}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (standard(6.0, 5.0, 2.0, 5.5), [HOLDS] * 7),
        (standard(-0.5, -0.4, -1.0, -0.2), [FAILS, HOLDS, HOLDS, FAILS, FAILS, FAILS, FAILS]),
        (standard(-5.0, -6.0, -5.5, -6.0), [FAILS, FAILS, FAILS, FAILS, FAILS, FAILS, HOLDS]),
        ({"diabetes": {FULL: [1.0]}}, [UNTESTED] * 7),
    ],
)
def test_verdicts_of_the_standard_splits(found: Cells, expected: list[str]) -> None:
    claims = list(uci.claims(found))
    assert verdicts(claims) == expected
    assert all("None" not in claim.evidence for claim in claims)


def gap(full: float, mode: float, diag: float, naval: float) -> Cells:
    found = {name: {FULL: [full], MAP: [mode], DIAG: [diag], SAMPLED: [-9.0]} for name in uci.GAP_SETS}
    return {**found, "naval": {FULL: [naval], MAP: [0.0]}}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (gap(2.0, -150.0, -1.0, 1.0), [HOLDS] * 7),
        (gap(-2.5, -50.0, -4.0, 1.0), [HOLDS, HOLDS, FAILS, HOLDS, FAILS, FAILS, FAILS]),
        (gap(-3.5, -5.0, -9.0, -1.0), [FAILS, HOLDS, FAILS, FAILS, HOLDS, FAILS, FAILS]),
        (gap(2.0, -150.0, -1.0, -1.0), [HOLDS] * 5 + [FAILS, HOLDS]),
        ({}, [UNTESTED] * 7),
    ],
)
def test_verdicts_of_the_gap_splits(found: Cells, expected: list[str]) -> None:
    assert verdicts(uci.gap_claims(found)) == expected


def test_differences_are_taken_on_the_splits_that_have_both() -> None:
    found = {"wine": {FULL: [1.0, 3.0, 100.0], DROPOUT: [0.0, 1.0]}}
    assert uci.paired(found, "wine", FULL, DROPOUT) == 1.5
    assert uci.paired(found, "wine", FULL, MAP) is None


def test_an_interrupted_run_goes_on_with_the_next_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(
        uci.Settings(("boston",), uci.Splits(4, 1, 1), steps=uci.Steps((1,)), cells=str(tmp_path)),
        baseline=uci.Baseline(splits=uci.Splits(0, 0, 0)),
    )
    asked: list[int] = []

    def cell(settings: uci.Settings, name: str, splits: str, split: int, seed: int, steps: int) -> dict[str, float]:
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
    assert found == {"boston": {MAP: [0.0, 1.0, 2.0, 3.0], uci.STEPS: [1.0] * 4}}
    assert asked == [0, 1, 2, 2, 3]
    assert runner.seconds > 0.1  # those of the interrupted run too
    changed = replace(settings, steps=uci.Steps((2,)))
    uci.measure_cells(changed, "standard", [0], runner)
    assert asked[5:] == [0, 1, 2, 3]


def test_gaps_that_are_none_are_left_out() -> None:
    every = uci.Settings(splits=uci.Splits(20, 20, 20))
    assert uci.chosen(every, "gap", "naval") == [n for n in range(16) if n not in (8, 11)]
    assert uci.chosen(every, "standard", "protein") == list(range(5))
    assert uci.chosen(uci.Settings(), "standard", "boston") == list(range(20))


def test_steps_are_those_that_held_out_data_like_best(monkeypatch: pytest.MonkeyPatch) -> None:
    likes = {0: {"3": 1.0, "5": 2.0}, 1: {"3": 1.0, "5": -9.0}, 2: {"3": 0.0, "5": 5.0}}

    def validation(settings: uci.Settings, name: str, splits: str, split: int, seed: int) -> dict[str, float]:
        return likes[split]

    monkeypatch.setattr(uci, "validation", validation)
    settings = uci.Settings(steps=uci.Steps((3, 5)))
    assert uci.validated_steps(settings, "yacht", "gap", 0, uci.Runner("")) == 3
    assert (
        uci.validated_steps(replace(settings, steps=uci.Steps((3, 5), splits=1)), "yacht", "gap", 0, uci.Runner(""))
        == 5
    )


def test_the_test_part_has_no_say_in_the_steps(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = uci.Settings(steps=uci.Steps((2, 6)), hidden=5)
    found = uci.validation(settings, "yacht", "standard", 0, 0)
    data = osc.data.load("yacht", split=0, validation_size=0)
    spoilt = replace(data, test=(data.test[0], data.test[1] + 100))
    monkeypatch.setattr(osc.data, "load", lambda *_, **__: spoilt)
    assert uci.validation(settings, "yacht", "standard", 0, 0) == found
    assert set(found) == {"2", "6"}


def test_a_split_of_yacht_in_original_units(data_folder: Path) -> None:
    found = uci.cell(uci.Settings(hidden=10), "yacht", "gap", 0, 0, steps=8)
    assert set(found) == {way for w in uci.WAYS[:8] for way in (w, uci.rmse(w))} | {uci.GAMMA, uci.SECONDS}
    assert found[uci.rmse(FULL)] == pytest.approx(found[uci.rmse(MAP)])
    assert 0.1 < found[uci.rmse(MAP)] < 15.2  # the standard deviation of the targets


def mackay(without: float, gamma: Sequence[float], evidence: Sequence[float], hessian: float, check: float) -> Mapping:
    m = linlap_mackay
    found: dict[str, dict[str, list[float]]] = {m.WITHOUT: {m.ERROR: [without] * 2}}
    for width, g, e in zip((3, 6, 12), gamma, evidence, strict=True):
        row = {m.GAMMA: g, m.SIZE: 3.0 * width + 1, m.EVIDENCE: e, m.NEGATIVE: hessian, m.ERROR: 0.1}
        found[f"1-{width}-1"] = {name: [value] * 2 for name, value in (row | {m.FIXED: check, m.SLOPE: check}).items()}
    return found


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (mackay(0.5, (4.0, 5.0, 5.1), (-20.0, -15.0, -15.1), 2.0, 1e-6), [HOLDS] * 7),
        (mackay(0.05, (4.0, 8.0, 20.0), (-20.0, -15.0, -5.0), 0.0, 1e-2), [FAILS] * 4 + [HOLDS] + [FAILS] * 2),
        (
            mackay(0.5, (4.0, 5.0, 50.0), (-9.0, -15.0, -15.1), 2.0, 5e-4),
            [HOLDS, FAILS, HOLDS, HOLDS, FAILS, HOLDS, FAILS],
        ),
        ({}, [UNTESTED] * 7),
    ],
)
def test_verdicts_of_mackays_example(values: Mapping, expected: list[str]) -> None:
    assert verdicts(linlap_mackay.claims(values, linlap_mackay.Settings(widths=(3, 6, 12)))) == expected


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
