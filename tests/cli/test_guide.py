"""The guide to the user's own data, followed from top to bottom: Python and commands, in an empty folder."""

import csv
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).resolve().parent.parent.parent / "docs" / "data.md"


def blocks(text: str) -> list[tuple[str, str]]:
    """The blocks of code of a page with their languages."""
    return re.findall(r"^```(python|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_guide_has_blocks_of_both_kinds() -> None:
    assert {language for language, _ in blocks(GUIDE.read_text(encoding="utf-8"))} == {"python", "sh"}


@pytest.mark.slow
def test_every_block_of_the_guide_runs(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    text = GUIDE.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "guide"}
    for language, block in blocks(text):
        if language == "python":
            exec(compile(block, str(GUIDE), "exec"), names)
            continue
        for line in block.splitlines():
            program, *words = shlex.split(line)
            assert program == "osculate"
            assert run(*words) == 0, line
    printed = capsys.readouterr().out
    (schema,) = re.findall(r"^```\n(  customer_id.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert schema in printed, "the print-out on the page"
    with Path("predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 200
    assert {row["prediction"] for row in rows} == {"no", "yes"}
    with Path("shots.csv").open(newline="") as file:
        assert {row["prediction"] for row in csv.DictReader(file)} == {"dark"}
