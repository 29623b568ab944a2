"""The tables of the pages that are made from records are those of the committed records."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.choice import PAGES, ROOT, TABLE, filled, read
from experiments.record import Findings, Number, Record, Setup

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
