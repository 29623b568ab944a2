"""The README: the table of speeds, and how pages are followed."""

import json
from pathlib import Path

import pytest

from benchmarks.markdown import markdown
from tests.following import ROOT, Block, blocks, follow

PAGE = """a
```python title="mine.txt"
one
```
```python
x = 1
```
b
```text
no code
```
```sh
make demo
```
```sh
cat mine.txt > read.txt
```
```python
x += 1
```
"""


def test_blocks_are_found_and_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [block.line for block in blocks(PAGE)] == [3, 6, 13, 16, 19]
    assert blocks(PAGE, "sh") == [Block("sh", 13, "make demo\n"), Block("sh", 16, "cat mine.txt > read.txt\n")]
    assert follow(blocks(PAGE), "example")["x"] == 2
    assert Path("read.txt").read_text() == "one\n"
    with pytest.raises(NameError):
        follow([Block("python", 1, "missing")], "example")


@pytest.mark.parametrize("name", ["benchmarks", "benchmarks_refinement", "benchmarks_gpu"])
def test_the_table_of_speeds_is_the_record(name: str) -> None:
    record = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    assert text[text.index(begin) + len(begin) : text.index(end)].strip() == markdown(record)
