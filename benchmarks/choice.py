"""Fill the tables of the README and the documentation from the records: ``python -m benchmarks.choice``.

A table stands between two comments, of which the first says where its cells come from::

    <!-- cells of experiments/results/linlap-sampling.json
    rows: precision 1: MAP -> network alone; precision 1: sampled
    columns: accuracy; NLL
    -->
    <!-- end -->

What follows ``->`` is the label that readers see.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments.record import SCHEMA, read_record
from osculate.registry import choose, lookup

ROOT = Path(__file__).resolve().parent.parent
FILLED = ("calibration", "claims", "foundation_models", "how_to_choose", "methods")
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in FILLED))

TABLE = re.compile(
    r"(<!-- cells of (?P<file>\S+)\nrows: (?P<rows>[^\n]+)\ncolumns: (?P<columns>[^\n]+)\n-->\n).*?(<!-- end -->)",
    re.DOTALL,
)

Cells = dict[tuple[str, str], str]


def filled(text: str, root: Path = ROOT) -> str:
    """The page with every table made anew from its record.

    Raises:
        ValueError: a row or a column that the record does not have; the message names those it has.
        FileNotFoundError: there is no such record.
    """
    return TABLE.sub(lambda found: found[1] + _table(found, root) + found[5], text)


def _table(found: re.Match[str], root: Path) -> str:
    cells = read(root / found["file"])
    rows, columns = _labels(found["rows"]), _labels(found["columns"])
    lines = [f"| | {' | '.join(columns.values())} |", f"|---|{'---|' * len(columns)}"]
    for place, (names, wanted) in enumerate(((rows, "row"), (columns, "column"))):
        for name in names:
            choose(f"{wanted} of {found['file']}", name, dict.fromkeys(key[place] for key in cells))
    for row, label in rows.items():
        lines.append(f"| {label} | {' | '.join(cells.get((row, column), '–') for column in columns)} |")
    return "\n".join(lines) + "\n"


def _labels(text: str) -> dict[str, str]:
    """Names in a record, and what readers see."""
    pairs = [entry.strip().partition(" -> ") for entry in text.split(";")]
    return {name: label or name for name, _, label in pairs}


def read(path: Path) -> Cells:
    """The cells of a record of any kind, as text, by row and column."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no record at {str(path)!r}, from which a table is made.")
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("schema") == SCHEMA:
        return {(n.row, n.column): str(n) for n in read_record(path).findings.numbers}
    kind = next((kind for kind in KINDS if kind in content), "")
    return lookup("kind of record", kind, KINDS)(content)


def _demo(content: Mapping[str, Any]) -> Cells:
    """Scores by method."""
    return {
        (method, name): f"{score['mean']:.3f} ± {score['standard_error']:.3f}"
        for method, scores in content["classification"].items()
        for name, score in scores.items()
    }


def _speeds(content: Mapping[str, Any]) -> Cells:
    """Costs in the units of each row, ours and those of the peers."""
    ours = {(row["name"], "units"): f"{row['ours']['median']:.2f}" for row in content["rows"]}
    theirs = {
        (row["name"], peer["name"]): f"{peer['spread']['median']:,.1f}"
        for row in content["rows"]
        for peer in row["peers"]
    }
    return ours | theirs


#: How to read a record of another schema, by an entry that only this kind has.
KINDS: Mapping[str, Callable[[Mapping[str, Any]], Cells]] = {"classification": _demo, "allocator": _speeds}

if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
