"""The README, the quick starts and the guide to the user's own data, followed from top to bottom in an empty folder."""

import csv
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.following import COMPLETE, bash, blocks, follow

#: Pages that `make check` follows; the others wait for a release.
CHECKED = ("README", "quick_table")


@pytest.mark.parametrize("page", COMPLETE, ids=lambda page: page.stem)
def test_a_page_has_blocks_of_both_kinds(page: Path) -> None:
    assert {block.language for block in blocks(page.read_text(encoding="utf-8"))} == {"python", "sh"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.release] * (page.stem not in CHECKED)) for page in COMPLETE],
    ids=lambda page: page.stem,
)
def test_a_page_is_followed(page: Path, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")

    def shell(code: str) -> None:
        """Commands of osculate within this process, which has imported everything."""
        for line in code.splitlines():
            program, *words = shlex.split(line, comments=True)
            if program == "osculate":
                assert run(*words) == 0, line
            elif program != "torchrun":  # test_distributed.py has the processes
                bash(line)

    follow(blocks(text), str(page), shell)
    with Path("predictions.csv").open(newline="") as file:
        assert list(csv.DictReader(file))
    printed = capsys.readouterr().out
    for schema in re.findall(r"^```\n(  customer_id.*?)^```", text, re.MULTILINE | re.DOTALL):
        assert schema in printed, "the print-out on the page"
    if page.stem == "data":
        for name, classes in {"predictions.csv": {"no", "yes"}, "shots.csv": {"dark"}}.items():
            with Path(name).open(newline="") as file:
                assert {row["prediction"] for row in csv.DictReader(file)} == classes
