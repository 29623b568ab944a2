"""Cells: what an interrupted experiment keeps, and goes on with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import REGISTRY, Runner, Table
from experiments.__main__ import main
from tests.experiments.test_reproductions import TINY

#: Experiments that are interrupted: those whose results are not times.
INTERRUPTED = (
    "lae-table2",
    "lae-table3",
    "lae-figure1",
    "lae-figure5",
    "lae-figure8",
    "lae-figure9",
    "lae-figure10",
    "lae-figure12",
    "linlap-mackay",
    "linlap-sampling",
    "linlap-uci-classification",
    "linlap-subnetwork",
    "linlap-logistic",
    "linlap-em",
    "linlap-images",
    "linlap-structures",
    "linlap-adapted",
    "linlap-marglik",
    "aevb-implicit",
    "functions-sensitivity",
)
#: Those that run in `make test` and in `make check`; the others keep their cells in the same way.
QUICK = ("linlap-images",)
SHORT = ("linlap-uci-classification", "aevb-implicit")
RESULT = ({("row", "a column"): [0.1, None], 3: (1, "two")}, torch.tensor([0.1, 0.7]), {"x": [(1, 2), True]})


def interrupted(monkeypatch: pytest.MonkeyPatch, after: int) -> Callable[[], int]:
    """Interrupt before the measurement of one more cell; the result counts those that were measured."""
    measured, cached = [0], Runner.cached

    def limited(self: Runner, kind: str, job: Any, about: Any, measure: Callable[[], Any]) -> Any:
        def counted() -> Any:
            if measured[0] == after:
                raise KeyboardInterrupt
            found = measure()  # may measure cells of its own
            measured[0] += 1
            return found

        return cached(self, kind, job, about, counted)

    monkeypatch.setattr(Runner, "cached", limited)
    return lambda: measured[0]


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow if name in SHORT else pytest.mark.release)
        for name in INTERRUPTED
    ],
)
def test_an_interrupted_experiment_ends_with_the_same_record(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(cells: Path | None) -> Any:
        return REGISTRY[name].run("small", 2, TINY[name], progress=False, cells=cells)

    whole = run(None)
    with monkeypatch.context() as patch:
        interrupted(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    kept = next(tmp_path.rglob("*.json"))
    resumed, before = run(tmp_path), kept.stat().st_mtime_ns
    assert resumed.findings == whole.findings
    with monkeypatch.context() as patch:
        measured = interrupted(patch, 0)
        again = run(tmp_path)
        assert measured() == 0
    assert again == resumed
    assert kept.stat().st_mtime_ns == before


@pytest.mark.slow
def test_the_folder_stands_beside_the_record_until_this_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["linlap-em", "--seeds", "2", "--no-progress"]
    words += [part for key, value in TINY["linlap-em"].items() for part in (f"--settings.{key}", json.dumps(value))]
    with monkeypatch.context() as patch:
        interrupted(patch, 1)
        assert main(words) != 0
    assert not Path("experiments/results/linlap-em.json").exists()
    assert len(list(Path("experiments/results/linlap-em.cells").rglob("*.json"))) == 1
    assert main(words) == 0
    assert Path("experiments/results/linlap-em.json").is_file()
    assert not Path("experiments/results/linlap-em.cells").exists()


@pytest.mark.slow
def test_cells_of_other_settings_are_not_taken(tmp_path: Path) -> None:
    def run(**changes: Any) -> list[Path]:
        REGISTRY["linlap-em"].run("small", 1, {**TINY["linlap-em"], **changes}, progress=False, cells=tmp_path)
        return list(tmp_path.rglob("*.json"))

    assert [len(run()), len(run()), len(run(precision=2.0)), len(run(samples=[4, 8]))] == [1, 1, 2, 3]


@pytest.mark.slow
def test_cells_in_a_folder_of_the_user_are_those_of_one_experiment_and_its_settings(tmp_path: Path) -> None:
    def run(name: str, **changes: Any) -> Any:
        changes = {**TINY[name], "cells": str(tmp_path), **changes}
        return REGISTRY[name].run("small", 1, changes, progress=False).findings

    first = run("lae-figure12")
    count = len(list(tmp_path.glob("seeds-0-*.json")))
    assert run("lae-figure12") == first
    assert len(list(tmp_path.glob("seeds-0-*.json"))) == count == 1
    run("lae-figure12", samples=3)
    run("lae-figure8")
    assert len(list(tmp_path.glob("seeds-0-*.json"))) == 3


def test_results_of_any_form_are_read_as_they_were_written(tmp_path: Path) -> None:
    def measure(name: str, seed: int) -> Any:
        measured.append((name, seed))
        return RESULT

    measured: list[tuple[str, int]] = []
    for folder in ("", str(tmp_path), str(tmp_path)):
        first, second = Runner(folder).each("any form", [("a", 0), ("a", 1)], measure)
        for found in (first, second):
            assert found[0] == RESULT[0]
            assert found[1].dtype == RESULT[1].dtype
            assert torch.equal(found[1], RESULT[1])
            assert found[2] == RESULT[2]
    assert len(measured) == 4


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"sha256": "0", "result": 1}', "\xff"])
def test_a_damaged_cell_is_measured_again(text: str, tmp_path: Path) -> None:
    def run(value: float) -> list[float]:
        return list(Runner(str(tmp_path)).each("numbers", [(0,)], lambda seed: value + seed))

    assert run(1.5) == run(2.5) == [1.5]
    (path,) = tmp_path.iterdir()
    for damage in (text.encode("latin-1"), path.read_bytes().replace(b"1.5", b"1.6"), path.read_bytes()[:-3]):
        path.write_bytes(damage)
        with pytest.warns(UserWarning, match=r"^the cell '.*numbers-0-\w+\.json' is damaged, and is measured again\.$"):
            assert run(2.5) == [2.5]
        assert run(3.5) == [2.5]
        path.unlink()
        assert run(1.5) == [1.5]


def test_a_table_takes_the_rows_of_a_seed() -> None:
    table = Table()
    for seed in range(2):
        table.extend({"MAP": {"NLL": 1.0 + seed}, "Laplace": {"NLL": 0.5, "ECE": 0.1}})
    assert table == {("MAP", "NLL"): [1.0, 2.0], ("Laplace", "NLL"): [0.5, 0.5], ("Laplace", "ECE"): [0.1, 0.1]}
