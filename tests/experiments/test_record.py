"""Records: what is written is read again, what is no record is passed over, and numbers are honest."""

import json
import math
from pathlib import Path

import pytest

from experiments.pages import pages
from experiments.record import FAILS, HOLDS, UNDECIDED, UNTESTED, Claim, Findings, Number, Record, Setup, read_record


def record(name: str = "lae-test", data: dict | None = None) -> Record:
    numbers = (
        Number("ours", "error", (0.1, 0.2, 0.3), "0.25 ± .01"),
        Number("theirs", "error", (), "0.5"),
        Number("ours", "count", (2596.0, 2596.0)),
    )
    claims = (
        Claim("it works", HOLDS, "error 0.2"),
        Claim("for everyone", FAILS, "not for all"),
        Claim("at scale", UNTESTED, "no machine"),
    )
    setup = Setup("small", {"sides": [8, 16], "lr": 0.1}, (0, 1, 2), 12.3, {"torch": "2.13.0"})
    return Record(name, "A test", "A document, Table 9", setup, Findings(numbers, claims, data or {"x": [1.5, 2.5]}))


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "one.json"
    record().write(path)
    assert read_record(path) == record()
    assert [p.name for p in path.parent.iterdir()] == ["one.json"]


def test_the_file_holds_mean_and_standard_error_and_lists_of_numbers_on_one_line(tmp_path: Path) -> None:
    record().write(tmp_path / "one.json")
    text = (tmp_path / "one.json").read_text(encoding="utf-8")
    first = json.loads(text)["findings"]["numbers"][0]
    assert first["mean"] == pytest.approx(0.2)
    assert first["standard_error"] == pytest.approx(0.1 / math.sqrt(3))
    assert any(line.strip().startswith('"values": [ 0.1, 0.2, 0.3 ]') for line in text.splitlines())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_not_finite_is_refused(value: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ours, error"):
        Number("ours", "error", (1.0, value))
    with pytest.raises(ValueError, match="JSON"):
        record(data={"x": [value]}).write(tmp_path / "one.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((), "–"),
        ((0.12345,), "0.123"),
        ((1.0, 3.0), "2 ± 1"),
        ((14333.0, 14333.0), "14,333"),
        ((1e-16, 3e-16), "0"),
        ((1.0, 1.0 + 1e-13), "1"),
    ],
)
def test_numbers_as_people_write_them(values: tuple[float, ...], text: str) -> None:
    assert str(Number("a", "b", values)) == text
    assert Number("a", "b", values, "7").cell == f"{text} (7)"


def test_a_claim_has_a_known_verdict_and_evidence() -> None:
    assert [Claim.judged("c", holds, "e").verdict for holds in (True, False, None)] == [HOLDS, FAILS, UNTESTED]
    assert Claim.over_seeds("c", "e").verdict == UNDECIDED, "until the rule decides it"
    with pytest.raises(ValueError, match="'perhaps'.*'holds'"):
        Claim("c", "perhaps", "e")
    with pytest.raises(ValueError, match="evidence"):
        Claim.judged("c", True, "")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"rows": []}', '{"schema": "osculate.reproduction/0"}', "\xff"])
def test_what_is_no_record_is_passed_over_in_a_folder_and_refused_by_name(text: str, tmp_path: Path) -> None:
    other = tmp_path / "results" / "other.json"
    record().write(tmp_path / "results" / "one.json")
    other.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"other\.json.*not a record"):
        read_record(other)
    assert {path.name for path in pages(tmp_path / "results")} == {"RESULTS.md", "one.md"}


def test_a_missing_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.json"):
        read_record(tmp_path / "nowhere.json")


def test_the_page_of_a_record_shows_both_numbers_every_claim_and_the_figure(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    record().write(folder / "one.json")
    text = pages(folder)[folder / "one.md"]
    assert "| ours | 0.2 ± 0.06 (0.25 ± .01) | 2,596 |" in text
    assert "| theirs | – (0.5) |  |" in text
    assert "* for everyone: **does not hold**. not for all" in text
    assert "![" not in text
    (folder / "one.png").write_bytes(b"")
    assert "![A test](one.png)" in pages(folder)[folder / "one.md"]
