"""Pages of results: an index, one for each document with its claims in order, and one for each table or figure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from experiments.causes import CAUSES
from experiments.documents import DOCUMENTS, judged
from experiments.experiment import REGISTRY
from experiments.record import FAILS, HOLDS, UNDECIDED, UNTESTED, Claim, Record, records_in
from experiments.rule import LEVEL
from experiments.statements import UNMEASURED, Artefact, Document, Outcome, Statement, named
from experiments.trials import scales

FOLDER = Path(__file__).parent
#: Settings that say how large a measurement is, with their names on a page.
SIZES = {"train_size": "training images", "images": "images", "epochs": "epochs", "steps": "steps", "splits": "splits"}
#: A number in hand-written lines: a file, row and column of its record.
CELL = re.compile(r"\{\{([\w-]+); ([^;{}]+); ([^;{}]+)\}\}")

INDEX = """# Which claims hold

Tables and figures of five documents, measured again. A page for each document has its claims in order; it links to a
page for each table or figure, with all numbers, the evidence in words and the figure. All are made from the records in
`{folder}/` by `python -m experiments --results experiments/{folder}`; `--stale` lists those that other code made.

"Holds": the whole interval of the difference over seeds (90 %; wider where a claim has several parts, is a headline or
was judged again) clears the margin of the claim; "does not hold": all of it falls short; otherwise "undecided" ([the
rule](../docs/decisions/0039-verdicts.md)). Headlines of a document are judged together (Holm). The number of a claim of
several parts is that of the part that decides. Claims of cost and exact ones repeat without seeds; of a cost the
interval over repeats decides. The last column says how many verdicts over seeds are expected to be wrong, at most, if
the margins are fair: those that were set before the run have a † on their page. Wrong verdicts on costs come on top.
On their pages "protocol" says whether a claim is the document's as printed, corrected, or our own.
[Why claims do not hold]({folder}/causes.md), where it was tested.
"""
KEYS = """**Headlines** (bold): a chance of at most {chance:.0%} that any is wrong (Holm). Of {number} claims with \
several seeds at most {wrong:.1f} verdicts are expected to be wrong, if margins are fair († set before the run). A \
claim holds if all its parts do; the number is the deciding part's; ratios (×) are geometric means. *n*: seeds, \
splits, images or tasks; *scale*: ours over the document's."""


CAUSED = """# Why claims do not hold

Of these claims a cause was found, and tested by a measurement, `python -m experiments ID` with the ID of the last
column. Of every other claim that does not hold the cause is unknown; where its page names one, it was not tested.

| | claim that does not hold | cause | tested by |
|---|---|---|---|
{lines}

[All documents](../RESULTS.md)
"""


def pages(folder: Path) -> dict[Path, str]:
    """Return every page by its path.

    Args:
        folder: Folder of the records and figures; the index stands beside it, the other pages in it.
    """
    records = judged({path.stem: record for path, record in records_in(folder).items()})
    found = {folder.parent / "RESULTS.md": index(records, folder)}
    known = [document for document in DOCUMENTS if any(each.id in records for each in document.artefacts)]
    found |= {folder / f"{document.id}.md": page(document, records) for document in known}
    found |= {folder / "causes.md": causes(records)} if known else {}
    return found | {folder / f"{name}.md": section(record, name, folder) for name, record in records.items()}


def index(records: Mapping[str, Record], folder: Path) -> str:
    """Return the page that leads to all documents."""
    if not records:
        return INDEX.format(folder=folder.name) + "\nThere is no record yet.\n"
    table = [
        f"| | claims | {HOLDS} | {FAILS} | {UNDECIDED} | not tested | wrong, at most |",
        "|---|---|---|---|---|---|---|",
    ]
    headlines = ["| | headline | verdict | number |", "|---|---|---|---|"]
    for document in DOCUMENTS:
        rows = list(_rows(document, records))
        if not rows:
            continue
        link = f"[{document.id}]({folder.name}/{document.id}.md)"
        verdicts = [verdict for *_, verdict in rows]
        counts = " | ".join(str(verdicts.count(each)) for each in (HOLDS, FAILS, UNDECIDED, UNTESTED))
        about = f"{document.title} {document.authors}".strip()
        table.append(f"| {link} {about} | {len(rows)} | {counts} | {_wrong(rows):.1f} |")
        for _, statement, outcome, verdict in rows:
            if statement.headline:
                headlines.append(
                    f"| {link} | {statement.text} | {verdict}{_alone(outcome, verdict)} | {outcome.quoted} |"
                )
    return "\n".join([INDEX.format(folder=folder.name), *table, "", *headlines, ""])


Row = tuple[Artefact, Statement, Outcome, str]


def _rows(document: Document, records: Mapping[str, Record]) -> Iterator[Row]:
    """Yield what is known about every claim, in order; nothing about those that have no record."""
    for each, statement in document.statements():
        if each.id in records:
            claims = records[each.id].findings.claims
            verdict = next((claim.verdict for claim in claims if claim.stated == statement.text), UNTESTED)
            yield each, statement, statement.outcome(records[each.id]), verdict
        else:
            yield each, statement, Outcome(None, "–", 0, UNMEASURED), UNTESTED


def _alone(outcome: Outcome, verdict: str) -> str:
    """Return the verdict on a headline by itself, where that among the others is another."""
    alone = named(outcome.holds)
    return f" (by itself: {alone})" if outcome.parts and verdict != alone else ""


def _wrong(rows: Sequence[Row]) -> float:
    """Largest expected number of wrong verdicts."""
    return LEVEL * _several(rows)


def _several(rows: Sequence[Row]) -> int:
    return sum(outcome.seeds > 1 for _, _, outcome, _ in rows)


def page(document: Document, records: Mapping[str, Record]) -> str:
    """Return the page of one document."""
    rows, lines, last = list(_rows(document, records)), [], ""
    for each, statement, outcome, verdict in rows:
        first = each.id != last
        record = records.get(each.id)
        name = f"[{each.name}]({each.id}.md)" if record else f"{each.name}, not run"
        scale = (each.scale or (scale_of(record) if record else "")) if first else ""
        text = f"**{statement.text}**" if statement.headline else statement.text
        seeds = str(outcome.seeds) if outcome.seeds else "" if statement.kind == "seeds" else statement.kind
        said = f"**{verdict}**" if verdict in (HOLDS, FAILS) else verdict
        said += " (one seed)" if outcome.seeds == 1 else _alone(outcome, verdict)
        where = name if first else ""
        text += "†" if each.before and not statement.after else ""
        numbers = f"{_escaped(outcome.quoted)} | {outcome.asked}"
        lines.append(f"| {where} | {text} | {said} | {numbers} | {seeds} | {scale} | {statement.protocol} |")
        last = each.id
    failed = [(each.id, statement.text) for each, statement, _, verdict in rows if verdict == FAILS]
    keys = KEYS.format(chance=2 * LEVEL, number=_several(rows), wrong=_wrong(rows))
    heading = f"# {document.id}: {document.title} {document.authors}".strip()
    return "\n".join(
        [
            heading.replace("# beyond: ", "# "),
            "",
            filled((FOLDER / document.summary).read_text(encoding="utf-8"), records).strip(),
            "",
            keys,
            "",
            "| | claim | verdict | number | asked | n | scale | protocol |",
            "|---|---|---|---|---|---|---|---|",
            *lines,
            "",
            *_unexplained(failed),
            "[All documents](../RESULTS.md)",
            "",
        ]
    )


def _unexplained(failed: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield for how many of the claims that do not hold the cause is known."""
    if failed:
        known = sum(claim in CAUSES for claim in failed)
        some = f"{known} {'has' if known == 1 else 'have'} a [tested cause](causes.md)"
        yield f"Of {len(failed)} claims that do not hold {some}; that of the rest is unknown or suspected."
        yield ""


def causes(records: Mapping[str, Record]) -> str:
    """Return the page of the claims that do not hold and have a cause that was tested."""
    lines = []
    for document in DOCUMENTS:
        for each, statement, _, verdict in _rows(document, records):
            key = each.id, statement.text
            if verdict == FAILS and key in CAUSES:
                measured = dict.fromkeys(found[0] for found in CELL.findall(CAUSES[key]))
                tested = ", ".join(f"[{name}]({name}.md)" for name in measured)
                where = f"[{document.id}]({document.id}.md)"
                lines.append(f"| {where} | {each.name}: {statement.text} | {filled(CAUSES[key], records)} | {tested} |")
    return CAUSED.format(lines="\n".join(lines))


def filled(text: str, records: Mapping[str, Record]) -> str:
    """Return hand-written lines with their numbers, ``{{file; row; column}}``, from the records.

    Raises:
        ValueError: A record has no such cell.
    """

    def number(found: re.Match[str]) -> str:
        if found[1] not in records:
            return "–"
        cells = {(n.row, n.column): n for n in records[found[1]].findings.numbers}
        if (found[2], found[3]) not in cells:
            raise ValueError(f"the record has no cell {found[0]!r}: the lines of a page name file, row and column.")
        return str(cells[found[2], found[3]])

    return CELL.sub(number, text)


def scale_of(record: Record) -> str:
    """Return the sizes of a measurement over those of the document, in words; the two that differ most."""
    if record.id not in REGISTRY:
        return ""
    ours, theirs = dict(_sizes(record.setup.settings)), dict(_sizes(REGISTRY[record.id].presets["paper"]))
    ratios = {name: ours[name] / value for name, value in theirs.items() if value and name in ours}
    differing = sorted((ratio, name) for name, ratio in ratios.items() if ratio != 1)
    return ", ".join(f"{SIZES[name]} {ratio:.2g}" for ratio, name in differing[:2]) or "1"


def _sizes(settings: Any) -> Iterator[tuple[str, float]]:
    """Yield the sizes among nested settings, the first of each name last, so that it counts."""
    if is_dataclass(settings):
        settings = {field.name: getattr(settings, field.name) for field in fields(settings)}
    each = list(settings.items()) if isinstance(settings, Mapping) else []
    for name, value in reversed(each):
        if isinstance(value, list | tuple) and value and (isinstance(value[0], Mapping) or is_dataclass(value[0])):
            value = value[0]
        if name in SIZES and isinstance(value, int | float):
            yield name, float(value)
        else:
            yield from _sizes(value)


def section(record: Record, name: str, folder: Path) -> str:
    """Return the page of one table or figure."""
    setup, number = record.setup, len(record.setup.seeds)
    added = " ".join(f"{seeds.capitalize()}: added at {commit}." for seeds, commit in setup.origin.added.items())
    where = next((d.id for d in DOCUMENTS if any(a.id == name for a in d.artefacts)), None)
    lines = [
        f"# {name}\n",
        f"{record.title}. {record.document}. Scale: {setup.scale}; {number} seed{'s' if number > 1 else ''}, "
        f"{setup.seconds:.0f} s, torch {setup.versions.get('torch', '?')}. [Record]({name}.json). "
        + (f"[All claims of {where}]({where}.md)." if where else "")
        + _tried(record)
        + (
            f" {added} Data that only the figure shows, and errors over test data, are of some of the seeds."
            if added
            else ""
        ),
        "\nIn italics is what the rule of verdicts compares, then the evidence as the measurement puts it. In the "
        "table ± is one standard error over seeds or splits, as if these had no data in common; of two numbers in a "
        "cell the one in brackets is the document's.\n",
    ]
    lines += [*map(_claim, record.findings.claims), ""]
    if (folder / f"{name}.png").is_file():
        lines.append(f"![{record.title}]({name}.png)\n")
    heading, *rows = record.findings.table()
    if rows:
        lines += [f"| | {' | '.join(map(_escaped, heading[1:]))} |", "|---" * len(heading) + "|"]
        lines += [*(f"| {' | '.join(map(_escaped, cells))} |" for cells in rows), ""]
    return "\n".join(lines)


def _tried(record: Record) -> str:
    """Return which larger scales were not run, in words."""
    found = scales(record.id)
    words = "needs an accelerator; a test takes three steps of it" if len(found) == 1 else ""
    words = words or "need an accelerator; a test takes three steps of each"
    return f" Not run: {' and '.join(found)} {words}." if found else ""


def _escaped(cell: str) -> str:
    """Return the text of a cell of a table."""
    return cell.replace("|", r"\|")


def _claim(claim: Claim) -> str:
    tested = f" *{claim.tested}.*" if claim.tested else ""
    return f"* {claim.stated or claim.text}: **{claim.verdict}**.{tested} {claim.evidence}".rstrip()
