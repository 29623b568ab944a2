"""Stale records that are kept, since a small run of their commit and one of today give the same numbers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments import confirm, read_record
from experiments.__main__ import main
from experiments.confirm import Differs, confirmed
from experiments.stale import stale
from tests.experiments.test_stale import changed, record

NUMBERS = [[1.0, 2.0], [3.0], [0.0]]


@pytest.fixture(name="results")
def _results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one record, of another state of the code."""
    monkeypatch.setattr(confirm, "commit", lambda: "today")
    changed(record("linlap-logistic"), code={"osculate/linalg": "0"}, commit="before").write(
        tmp_path / "linlap-logistic.json"
    )
    return tmp_path


@pytest.fixture(name="runs")
def _runs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that sets what small runs give: today, repeated, and at the earlier commit."""
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(confirm, "_git", lambda *words: commands.append(words))

    def runs(
        today: Sequence[Any], again: Sequence[Any], before: Sequence[Any], settings: str = "tiny", now: str = "tiny"
    ) -> Any:
        given = iter([(today, now), (again, now), (before, settings)])

        def probe(*_: Any) -> dict[str, Any]:
            numbers, of = next(given)
            return {"settings": of, "numbers": numbers}

        monkeypatch.setattr(confirm, "_probe", probe)
        return commands

    return runs


def test_a_record_whose_numbers_are_the_same_is_not_stale_any_more(results: Path, runs: Any) -> None:
    commands = runs(NUMBERS, [[1.0, 2.0], [4.0], [0.0]], [[1.0, 2.0005], [7.0], [0.0]])  # the third is not repeated
    assert main(["--confirm", "--results", str(results)]) == 0
    assert stale(results) == []
    origin = read_record(results / "linlap-logistic.json").setup.origin
    assert (origin.commit, origin.confirmed) == ("before", "today")
    assert [words[:2] for words in commands] == [("worktree", "add"), ("worktree", "remove")]
    assert commands[0][-1] == "before"


def test_numbers_that_are_kept_take_one_run(results: Path, runs: Any) -> None:
    path = results / "linlap-logistic.json"
    runs(NUMBERS, [[1.0, 2.0], [4.0], [0.0]], NUMBERS)  # the third is not repeated
    confirmed(stale(results)[0])
    commands = runs([[1.0, 2.0], [5.0], [1e-12]], NUMBERS, NUMBERS)
    commands.clear()
    assert confirmed(stale(results)[0]).setup.origin.confirmed == "today"
    assert commands == []
    runs([[1.1, 2.0], [3.0], [0.0]], [[1.1, 2.0], [3.0], [0.0]], NUMBERS)
    with pytest.raises(Differs, match="1 of 4 numbers"):
        confirmed(stale(results)[0])
    one = read_record(path)
    replace(one, setup=replace(one.setup, origin=replace(one.setup.origin, confirmed="later"))).write(path)
    commands = runs([[1.1, 2.0], [3.0], [0.0]], [[1.1, 2.0], [3.0], [0.0]], [[1.1, 2.0], [3.0], [0.0]])
    commands.clear()
    confirmed(stale(results)[0])
    assert commands[0][-1] == "before", "numbers do not drift from one commit to the next"
    (results / "small" / path.name).write_text("{", encoding="utf-8")
    runs(NUMBERS, NUMBERS, NUMBERS)
    confirmed(stale(results)[0])
    changed(read_record(path), commit="measured again").write(path)  # what is kept is of another commit
    commands = runs(NUMBERS, NUMBERS, NUMBERS)
    confirmed(stale(results)[0])
    assert commands


def test_numbers_of_other_tiny_settings_are_not_compared(results: Path, runs: Any) -> None:
    runs(NUMBERS, NUMBERS, NUMBERS)
    confirmed(stale(results)[0])
    commands = runs(NUMBERS, NUMBERS, NUMBERS, "shorter", now="shorter")
    commands.clear()
    confirmed(stale(results)[0])
    assert commands, "as many numbers, and the same, may be of other runs"


@pytest.mark.parametrize(
    ("today", "again", "before", "settings", "words"),
    [
        (NUMBERS, NUMBERS, [[1.0, 2.01], [3.0], [0.0]], "tiny", "1 of 4 numbers"),
        (NUMBERS, NUMBERS, [[1.0, 2.0], [3.0]], "tiny", "4 numbers, and 3 before"),
        (NUMBERS, NUMBERS, NUMBERS, "others", "settings"),
        ([[1.0], [2.0], [3.0]], [[1.0], [2.1], [3.1]], NUMBERS[:2], "tiny", "1 of 3 numbers again"),
    ],
)
def test_other_numbers_leave_it_stale(
    today: Any, again: Any, before: Any, settings: str, words: str, results: Path, runs: Any
) -> None:
    runs(today, again, before, settings)
    (one,) = stale(results)
    with pytest.raises(Differs, match=words):
        confirmed(one)


def test_only_other_code_is_confirmed(results: Path, runs: Any, capsys: pytest.CaptureFixture[str]) -> None:
    runs(NUMBERS, NUMBERS, NUMBERS)
    path = results / "linlap-logistic.json"
    changed(read_record(path), versions={"torch": "1.9.0"}).write(path)
    assert main(["--confirm", "--results", str(results)]) == 0
    assert "to be measured again, torch: 1.9" in capsys.readouterr().out
    changed(record("linlap-logistic"), code={}, commit="abc-dirty").write(path)
    with pytest.raises(Differs, match="abc-dirty"):
        confirmed(stale(results)[0])


def test_code_that_is_not_committed_confirms_nothing(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(confirm, "commit", lambda: "today-dirty")
    assert main(["--confirm", "--results", str(results)]) == 2
    assert "commit it first" in capsys.readouterr().err


@pytest.mark.slow
def test_a_small_run_gives_numbers() -> None:
    assert confirm._probe(confirm.TREE, "linlap-logistic")["numbers"]
