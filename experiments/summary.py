"""RESULTS.md: tables and verdicts of all records."""

import os
from collections.abc import Mapping
from pathlib import Path

from experiments.record import FAILS, HOLDS, UNTESTED, Record, records_in

HEAD = """# Results

Tables and figures of the documents that osculate implements, measured again. Each has a command that repeats it and a
record with every setting in `{folder}/`. This page is made from the records by
`python -m experiments --results experiments/{folder}`.

Where a cell has two numbers, the one in brackets is the document's. ± is one standard error over seeds.
"""


def markdown(folder: Path) -> str:
    """Return the page that sums up all records of a folder.

    Args:
        folder: Folder of the records, and of their figures under the same names; the page stands beside it.
    """
    found = records_in(folder)
    parts = [HEAD.format(folder=folder.name), _overview(found)]
    parts += [_section(record, path, folder.parent) for path, record in found.items()]
    return "\n".join(part for part in parts if part)


def _overview(records: Mapping[Path, Record]) -> str:
    if not records:
        return "There is no record yet.\n"
    lines = [f"| | | {HOLDS} | {FAILS} | {UNTESTED} |", "|---|---|---|---|---|"]
    for path, record in records.items():
        verdicts = [claim.verdict for claim in record.findings.claims]
        counts = " | ".join(str(verdicts.count(verdict)) for verdict in (HOLDS, FAILS, UNTESTED))
        lines.append(f"| [{path.stem}](#{path.stem}) | {record.title} | {counts} |")
    return "\n".join([*lines, ""])


def _section(record: Record, path: Path, start: Path) -> str:
    setup = record.setup
    number = len(setup.seeds)
    seeds = f"{number} seed{'s' if number > 1 else ''}"
    lines = [
        f"## {path.stem}\n",
        f"{record.title}. {record.document}. Scale: {setup.scale}; {seeds}, {setup.seconds:.0f} s, "
        f"torch {setup.versions.get('torch', '?')}. [Record]({os.path.relpath(path, start)}).\n",
    ]
    figure = path.with_suffix(".png")
    if figure.is_file():
        lines.append(f"![{record.title}]({os.path.relpath(figure, start)})\n")
    heading, *rows = record.findings.table()
    if rows:
        lines += [f"| | {' | '.join(heading[1:])} |", "|---" * len(heading) + "|"]
        lines += [f"| {' | '.join(cells)} |" for cells in rows]
    lines.append("")
    for claim in record.findings.claims:
        lines.append(f"* {claim.text}: **{claim.verdict}**. {claim.evidence}")
    return "\n".join([*lines, ""])
