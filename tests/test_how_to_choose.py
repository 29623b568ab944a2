"""The tables of the pages that are made from records are those of the committed records."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.choice import PAGES, ROOT, TABLE, filled, read
from experiments.record import Findings, Number, Record, Setup

#: README and all pages of the documentation. Decision notes keep the numbers of their day; the pages of the gallery are
#: programs, which run while the site is built, beside their output.
DOCS = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name != "decisions"),
]
#: What is no prose: comments, programs and code, addresses, and tables that other tests compare with their records.
NO_PROSE = re.compile(
    r"<!-- (benchmarks\w*|large networks) -->.*?<!-- end of \1 -->|<!-- .*?-->|```.*?```|`[^`\n]*`|\]\([^)]*\)",
    re.DOTALL,
)
#: Numbers of versions, by what stands before them.
VERSION = r"(?<!Python )(?<!torch )(?<!BackPACK )(?<!pythae )(?<!version )"

TEXT = """before
<!-- cells of one.json
rows: a -> first; b
columns: x -> of x; y
-->
old
<!-- end -->
after
"""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    numbers = [
        Number(row, column, (value,)) for row, column, value in (("a", "x", 1.5), ("a", "y", 2.0), ("b", "x", 3.0))
    ]
    setup = Setup("small", {}, (0,), 1.0, {})
    Record("one", "title", "document", setup, Findings(tuple(numbers), ())).write(tmp_path / "one.json")
    return tmp_path


every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@every_page
def test_the_page_is_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert TABLE.findall(text)
    assert text.count("<!-- cells of") == text.count("<!-- end -->") == len(TABLE.findall(text))
    assert filled(text) == text, "run python -m benchmarks.choice"


@every_page
def test_numbers_stand_in_the_tables_only(page: Path) -> None:
    prose = TABLE.sub("", page.read_text(encoding="utf-8"))
    prose = re.sub(r"```.*?```", "", prose, flags=re.DOTALL)
    assert not re.findall(r"(?<![\w(])\d*\.\d{2,}", prose)


def quoted(text: str) -> list[str]:
    """Numbers with decimals in prose; those of versions and alone in brackets, such as settings, do not count."""
    return re.findall(VERSION + r"(?<![\w(.])\d*\.\d+(?!\w|\.\d)", NO_PROSE.sub("", TABLE.sub("", text)))


def numbers(content: Any) -> Iterator[float]:
    """All numbers of a record, also those of its evidence in words."""
    if isinstance(content, Mapping | list):
        for part in content.values() if isinstance(content, Mapping) else content:
            yield from numbers(part)
    elif isinstance(content, str):
        yield from map(float, re.findall(r"\d+\.\d+", content))
    elif isinstance(content, float):
        yield content


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_numbers_of_a_page_are_in_the_records_that_it_names(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = {ROOT / name for name in re.findall(r"[\w/-]+\.json", text)}
    known = [v for path in names if path.is_file() for v in numbers(json.loads(path.read_text(encoding="utf-8")))]
    for number in quoted(text):
        digits = len(number.partition(".")[2])
        assert float(number) in {round(abs(value), digits) for value in known}, f"{number} is in no record of {names}"


def test_a_number_that_no_record_has_is_found() -> None:
    assert quoted("it is 0.37 or `lr=0.01`, at 1.5. Python 3.10, N(0, 0.01²), [1.25](1.26)") == ["0.37", "1.5", "1.25"]
    assert quoted("<!-- benchmarks -->1.2<!-- end of benchmarks -->1.3<!-- from 1.4 -->") == ["1.3"]
    assert list(numbers({"a": [1.5, {"b": "0.25 nats"}], "c": True})) == [1.5, 0.25]


def test_a_table_is_made_from_its_record(results: Path) -> None:
    made = filled(TEXT, results)
    assert "| | of x | y |\n|---|---|---|\n| first | 1.5 | 2 |\n| b | 3 | – |\n<!-- end -->" in made
    assert made.startswith("before\n")
    assert made.endswith("after\n")
    assert "old" not in made
    assert filled(made, results) == made


def test_what_a_record_does_not_have_is_named(results: Path) -> None:
    with pytest.raises(ValueError, match=r"column of one.json 'z'.*'x', 'y'"):
        filled(TEXT.replace("; y", "; z"), results)
    with pytest.raises(ValueError, match=r"row of one.json 'c'.*'a', 'b'"):
        filled(TEXT.replace("; b", "; c"), results)
    with pytest.raises(FileNotFoundError, match=r"two\.json"):
        filled(TEXT.replace("one.json", "two.json"), results)
    (results / "one.json").write_text("{}")
    with pytest.raises(ValueError, match="kind of record"):
        filled(TEXT, results)


def test_other_records_are_read_too() -> None:
    path = ROOT / "experiments/results/fashion_mnist.json"
    demo = json.loads(path.read_text(encoding="utf-8"))["classification"]["MAP"]["nll"]
    cell = read(path)["MAP", "nll"]
    assert cell == f"{demo['mean']:.3f} ± {demo['standard_error']:.3f}"
    assert float(read(ROOT / "benchmarks/results/benchmarks.json")["fit kron ggn mlp", "units"]) > 0
