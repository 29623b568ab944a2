"""Measure a table or figure of the documents again: python -m experiments ID, for example lae-figure7.

The result is a record (experiments/results/ID.json) with the document's numbers beside ours and a verdict on each of
its claims, and the figure beside it as PNG. The same command after an interruption goes on with the cells that are
done, in the folder ID.cells beside the record until this is written.
"""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from experiments import ALIASES, REGISTRY, Record, read_record
from experiments.documents import artefact, judge
from experiments.pages import pages
from experiments.statements import rejudged
from osculate.cli.app import run_alone
from osculate.cli.command import Command
from osculate.cli.tables import console
from osculate.files import write_text
from osculate.registry import lookup

#: The option that may be given without its name.
SUBJECT = "experiment"
FOLDER = Path("experiments/results")


@dataclass(frozen=True)
class RunOptions:
    """Experiment and scale.

    Args:
        experiment: ID of the experiment, also without the name of the option; --list shows them all.
        scale: Small (two CPU cores, a few minutes), paper (the document's own setting), or one between.
        seeds: Number of repetitions; tables show mean ± standard error.
        settings: Settings that differ from the preset, such as --settings.batch 4.
        progress: Show progress bars.
    """

    experiment: str | None = None
    scale: str = "small"
    seeds: int = 3
    settings: dict[str, Any] | None = None
    progress: bool = True


@dataclass(frozen=True)
class RecordOptions:
    """Records to read and write.

    Args:
        json: Path of the record, experiments/results/ID.json by default. The figure stands beside it.
        draw: Draw the figure of the record at --json again, without measuring.
        list: Show every id and its title.
        results: Folder of records; writes RESULTS.md beside it, and a page for each document and record in it.
        judge: Judge the records of that folder (experiments/results by default) anew by the rule of verdicts, without
            measuring.
    """

    json: Path | None = None
    draw: bool = False
    list: bool = False
    results: Path | None = None
    judge: bool = False


def run(options: RunOptions, records: RecordOptions) -> None:
    """List the experiments, run one, or sum up their records."""
    if not (records.list or records.results or records.judge or options.experiment):
        raise ValueError(
            f"say which experiment: python -m experiments ID, with one of {', '.join(REGISTRY)}; or --list."
        )
    if records.list:
        _print_list()
    if options.experiment:
        _measure(options, records, options.experiment)
    if records.results and not records.results.is_dir():
        raise FileNotFoundError(f"there is no folder {str(records.results)!r} with records.")
    if records.judge:
        for name in judge(records.results or FOLDER):
            print(f"Judged {name}")
    if records.results:
        for path, text in pages(records.results).items():
            write_text(path, text)
        print(f"Saved {records.results.parent / 'RESULTS.md'} and the pages in {records.results}")


def _measure(options: RunOptions, records: RecordOptions, name: str) -> None:
    from osculate import plots

    chosen = lookup("experiment", ALIASES.get(name, name), REGISTRY)
    path = records.json or FOLDER / f"{chosen.id}.json"
    if records.draw:
        record = read_record(path)
    else:
        cells = path.with_suffix(".cells")
        record = chosen.run(options.scale, options.seeds, options.settings, options.progress, cells)
        known = artefact(path.stem)
        record = rejudged(record, known.statements, {}) if known else record
        record.write(path)
        shutil.rmtree(cells, ignore_errors=True)
    figure = plots.save(chosen.draw(record), path.with_suffix(".png"))
    _print(record)
    print(f"Saved {path} and {figure}")


def _print_list() -> None:
    table = Table("id", "title", box=None, pad_edge=False, show_header=False)
    table.columns[0].min_width = 2 + max(map(len, REGISTRY))
    table.columns[1].no_wrap = True
    folder = ""
    for name, chosen in REGISTRY.items():
        package = chosen.measure.__module__.rpartition(".")[0]
        if package != folder:
            folder = package
            table.add_section()
            table.add_row(f"[bold]{folder.rpartition('.')[2]}[/bold]", escape(f"{sys.modules[folder].__doc__}"))
        table.add_row(f"  {name}", chosen.title)
    console().print(table)


def _print(record: Record) -> None:
    heading, *rows = record.findings.table()
    table = Table(*heading, title=record.title, title_justify="left", box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    out = console()
    out.print(table)
    for claim in record.findings.claims:
        out.print(f"{escape(claim.text)}: [bold]{claim.verdict}[/bold]. {escape(claim.evidence)}", highlight=False)


COMMAND = Command(run, (RunOptions, RecordOptions), __doc__ or "", SUBJECT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    return run_alone(COMMAND, "python -m experiments", arguments)


if __name__ == "__main__":
    sys.exit(main())
