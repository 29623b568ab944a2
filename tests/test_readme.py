"""The README's Python blocks, executed from top to bottom in one namespace as a reader would run them."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.markdown import markdown

README = Path(__file__).resolve().parent.parent / "README.md"


def python_blocks(text: str) -> list[tuple[int, str]]:
    """The ```python blocks of a Markdown text, each with the number of its first line."""
    pattern = re.compile(r"^```python[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
    return [(text[: found.start(1)].count("\n") + 1, found[1]) for found in pattern.finditer(text)]


def run_blocks(blocks: list[tuple[int, str]], name: str) -> dict:
    namespace: dict = {"__name__": "readme"}
    for line, code in blocks:
        # blank lines in front make the line numbers of a traceback those of the document
        exec(compile("\n" * (line - 1) + code, name, "exec"), namespace)
    return namespace


def test_blocks_are_found_and_run_in_order() -> None:
    text = "a\n```python\nx = 1\n```\nb\n```sh\nnot python\n```\n```python\nx += 1\n```\n"
    assert python_blocks(text) == [(3, "x = 1\n"), (10, "x += 1\n")]
    assert run_blocks(python_blocks(text), "example")["x"] == 2
    with pytest.raises(NameError):
        run_blocks([(1, "missing")], "example")


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = python_blocks(README.read_text(encoding="utf-8"))
    assert blocks, f"{README.name} has no Python block: the quick start is gone"
    monkeypatch.chdir(tmp_path)  # what the examples save lands here
    run_blocks(blocks, str(README))


def test_the_table_of_speeds_is_the_record() -> None:
    record = json.loads((README.parent / "benchmarks" / "results" / "benchmarks.json").read_text(encoding="utf-8"))
    text = (README.parent / "docs" / "speed.md").read_text(encoding="utf-8")
    begin, end = "<!-- benchmarks -->", "<!-- end of benchmarks -->"
    assert text[text.index(begin) + len(begin) : text.index(end)].strip() == markdown(record)
