"""Measure a table or figure of the documents again: python -m experiments ID, for example lae-figure7.

The result is a record (experiments/results/ID.json) with the document's numbers beside ours and a verdict on each of
its claims, and the figure beside it as PNG. The same command after an interruption goes on with the cells that are
done, in the folder ID.cells beside the record until this is written. --records does so for all records that are stale.
Run --confirm before it: a record whose code alone has changed is kept if a small run gives the same numbers as then.
"""

import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from experiments import ALIASES, REGISTRY, Record, read_record
from experiments.confirm import Differs, confirmed
from experiments.documents import artefact, judge
from experiments.experiment import Experiment, changed
from experiments.pages import pages
from experiments.record import records_in
from experiments.runner import OutOfTime
from experiments.settings import described, separate, typed
from experiments.stale import Stale, reasons, stale
from experiments.statements import rejudged
from osculate.cli.app import run_alone
from osculate.cli.command import Command
from osculate.cli.tables import console
from osculate.files import write_text
from osculate.registry import lookup

#: The option that may be given without its name.
SUBJECT = "experiment"
FOLDER = Path("experiments/results")
#: Seeds of a new record.
SEEDS = 3


@dataclass(frozen=True)
class RunOptions:
    """Experiment and scale.

    Args:
        experiment: ID of the experiment, also without the name of the option; --list shows them all.
        scale: Small (two CPU cores, minutes to hours), paper (the document's own setting), or one between.
        seeds: Number of repetitions; tables show mean ± standard error. By default as many as the record has that is
            replaced, or else 3. If it has fewer, only those that it lacks are measured, unless
            it is stale or has cells that cannot be joined.
        settings: Settings that differ from the preset, as in --settings.fit.images 500; ID --list shows them.
        progress: False to show no progress bars.
    """

    experiment: str | None = None
    scale: str = "small"
    seeds: int | None = None
    settings: dict[str, Any] | None = None
    progress: bool = True


@dataclass(frozen=True)
class RecordOptions:
    """Records to read and write.

    Args:
        json: Path of the record, experiments/results/ID.json by default. The figure stands beside it.
        overwrite: Replace a record there of another scale, of other settings or of more seeds, and measure all seeds of
            one that has fewer.
        draw: Draw the figure of the record at --json again, without measuring.
        list: Show every id and its title; of a named experiment its settings and their values at each scale.
        results: Folder of records; writes RESULTS.md beside it, and a page for each document and record in it.
        judge: Judge the records of that folder (experiments/results by default) anew by the rule of verdicts, without
            measuring.
        stale: List the records of that folder that other code, settings, data or another minor version of torch made,
            with their hours; those with headlines first.
        confirm: Run the stale ones with tiny settings, at their own commit and today, and keep those that agree. One
            experiment alone if it is named.
        records: Measure the stale ones again in this order, then the seeds that headlines lack; judge. The same command
            goes on after an interruption.
        hours: Limit of the time for --records, which then ends between two cells.
    """

    json: Path | None = None
    overwrite: bool = False
    draw: bool = False
    list: bool = False
    results: Path | None = None
    judge: bool = False
    stale: bool = False
    confirm: bool = False
    records: bool = False
    hours: float | None = None

    def __post_init__(self) -> None:
        if self.hours is not None and not self.hours > 0:
            raise ValueError(f"hours is {self.hours:g}: give a positive number.")
        modes = [name for name in ("draw", "list", "judge", "stale", "confirm", "records") if getattr(self, name)]
        if len(modes) > 1:
            raise ValueError(f"{' and '.join(f'--{name}' for name in modes)} are different things to do: give one.")


def run(options: RunOptions, records: RecordOptions) -> None:
    """List the experiments, run one, or sum up their records."""
    folder, renewed = records.results or FOLDER, records.stale or records.confirm or records.records
    summed = renewed or records.results or records.judge
    if records.list and (summed or options != RunOptions(options.experiment, progress=options.progress)):
        raise ValueError("--list shows the experiments, or with an ID its settings at each scale: give nothing else.")
    if records.list and options.experiment:
        print(described(_chosen(options.experiment)))
    elif records.list:
        _print_list()
    elif not (summed or options.experiment or records.draw or records.hours):
        raise ValueError(
            f"say which experiment: python -m experiments ID, with one of {', '.join(REGISTRY)}; or --list."
        )
    if options.experiment and (records.results or records.judge or records.stale or records.records):
        raise ValueError(
            f"{options.experiment} is one experiment, and --results, --judge, --stale and --records are about "
            "all records: give one or the other."
        )
    if not options.experiment and (options != RunOptions(progress=options.progress) or records.json):
        raise ValueError("--scale, --seeds, --settings and --json are about one experiment: python -m experiments ID.")
    if options.experiment and not records.confirm and not records.list:
        _measure(options, records, options.experiment)
    if records.results and not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {str(folder)!r} with records.")
    if summed and not records_in(folder):
        raise FileNotFoundError(
            f"there is no record in {str(folder)!r}: python -m experiments ID --json PATH makes one."
        )
    if records.hours and not (records.stale or records.records):
        raise ValueError("--hours is the limit of --records: give that too.")
    if records.draw and not options.experiment:
        raise ValueError("say which figure: python -m experiments ID --draw.")
    if records.confirm:
        _confirm(stale(folder), options.experiment)
    if records.stale or records.records:
        found = stale(folder)
        _print_stale(found, records.hours)
        if records.records and found:
            _renew(found, folder, options.progress, records.hours)
    if records.judge:
        _judge(folder)
    if records.results and not renewed:
        _sum_up(folder)


def _judge(folder: Path) -> None:
    found = judge(folder)
    for name in found:
        print(f"Judged {name}")
    if not found:
        print("All verdicts are those of the rule already.")


def _sum_up(folder: Path) -> None:
    if damaged := [str(path) for path in sorted(folder.glob("*.json")) if _damaged(path)]:
        raise ValueError(
            f"pages without {', '.join(damaged)} would lack its claims: it is damaged. Measure it again, or remove it."
        )
    for path, text in pages(folder).items():
        write_text(path, text)
    print(f"Saved {folder.parent / 'RESULTS.md'} and the pages in {folder}")


def _confirm(found: Sequence[Stale], name: str | None) -> None:
    """Keep the stale records whose numbers today's code gives in a small run."""
    chosen = None if name is None else _chosen(name).id
    for each in found:
        if each.reasons and chosen in (None, each.record.id):
            try:
                confirmed(each).write(each.path)
                print(f"{each.path.stem}: confirmed")
            except Differs as difference:
                print(f"{each.path.stem}: to be measured again, {difference}")


def _renew(found: Sequence[Stale], folder: Path, progress: bool, hours: float | None) -> None:
    """Measure stale records again, in order, until the time is over."""
    until, failed = inf if hours is None else time.monotonic() + 3600 * hours, []
    try:
        for each in found:
            try:
                _save(each.again(progress, until), each.path, each.cells)
            except OutOfTime:
                print(f"The time is over; the same command goes on with {each.path.stem}.")
                break
            except (OSError, ValueError, RuntimeError, ImportError) as error:
                # such as data or libraries that the others do not need
                print(f"{each.path.stem} was not measured again: {error}")
                failed.append(each.path.stem)
    finally:
        _judge(folder)
        _sum_up(folder)
    if failed:
        raise ValueError(f"the errors above kept {', '.join(failed)} from being measured again.")


def _print_stale(found: Sequence[Stale], limit: float | None) -> None:
    """Print the records to measure again with their hours, and what a limit allows."""
    table = Table("record", "hours", "in all", "why", box=box.SIMPLE_HEAD)
    total = 0.0
    parts = {
        "headlines": [each for each in found if each.reasons and each.headline],
        "others": [each for each in found if each.reasons and not each.headline],
        "headlines with few seeds": [each for each in found if not each.reasons],
    }
    for title, part in parts.items():
        hours = sum(each.hours for each in part)
        table.add_row(
            f"[bold]{title}: {len(part)}[/bold]" if "few" in title else f"[bold]{title}: {len(part)} stale[/bold]",
            f"[bold]{hours:.2f}[/bold]",
            "",
            "",
        )
        for each in part:
            total += each.hours
            begun = "begun; " if each.cells.is_dir() else ""
            over = " (beyond the limit)" if limit is not None and total > limit else ""
            table.add_row(
                f"  {each.path.stem}",
                f"{each.hours:.2f}",
                f"{total:.2f}{over}",
                begun + "; ".join(filter(None, [*each.reasons, each.short])),
            )
        table.add_section()
    console().print(table)


def _measure(options: RunOptions, records: RecordOptions, name: str) -> None:
    chosen = _chosen(name)
    path = records.json or FOLDER / f"{chosen.id}.json"
    if path.is_dir() or any(parent.is_file() for parent in path.parents):
        raise ValueError(f"no file can be written to {str(path)!r}: give --json the path of a file in a folder.")
    before = read_record(path) if records.draw or path.is_file() and not _damaged(path) else None
    if before and before.id != chosen.id:
        raise ValueError(f"{str(path)!r} is a record of {before.id}, not of {chosen.id}: give another --json.")
    if records.draw and before:
        _show(before, path)
        return
    cells, changes = path.with_suffix(".cells"), typed(chosen, options.scale, options.settings or {})
    seeds = options.seeds
    if seeds is None:
        seeds = len(before.setup.seeds) if before else SEEDS
    if before and not records.overwrite:
        _require_as_much(before, path, chosen, options.scale, changes, seeds)
    try:
        if before and not records.overwrite and seeds > len(before.setup.seeds):
            again = Stale(path, before, False, tuple(reasons(before)), seeds)
            had, why = len(before.setup.seeds), "" if again.first else ", to which no others can be joined"
            print(f"{path} has {had} seed{'s' * (had > 1)}{why}: measuring from seed {again.first} to {seeds - 1}.")
            record = again.again(options.progress)
        else:
            record = chosen.run(options.scale, seeds, changes, options.progress, cells)
    except KeyboardInterrupt:
        if kept := sum(each.is_file() for each in cells.rglob("*")):
            print(f"{kept} files of finished cells are kept in {cells}: the same command goes on with them.")
        raise
    _save(record, path, cells)


def _require_as_much(
    before: Record, path: Path, chosen: Experiment, preset: str, changes: dict[str, Any], seeds: int
) -> None:
    """Refuse to replace a record by one of another scale, of other settings or of fewer seeds."""
    settings = changed(chosen.presets[preset], changes)
    scale = ", ".join([preset, *(f"{name} = {getattr(settings, name)}" for name in changes)])
    had = len(before.setup.seeds)
    known, asked = (
        json.loads(json.dumps(values, default=str)) for values in (before.setup.settings, chosen.recorded(settings))
    )
    same = known == asked and before.setup.scale.split(", ")[0] == preset  # perhaps in another order
    if not (same or scale == before.setup.scale) or seeds < had:
        raise ValueError(
            f"{str(path)!r} has the scale {before.setup.scale!r} and {had} seeds, this run would have {scale!r} and "
            f"{seeds}: give --json PATH to keep both, or --overwrite."
        )


def _damaged(path: Path) -> bool:
    """True if a file holds no JSON, such as half a record."""
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:  # also bytes that are no text
        return True
    return False


def _chosen(name: str) -> Experiment:
    return lookup("experiment", ALIASES.get(name, name), REGISTRY)


def _save(record: Record, path: Path, cells: Path) -> None:
    """Write a record with the verdicts of the rule, of headlines among the records beside it; remove its cells."""
    known = artefact(path.stem) or artefact(record.id)
    record = rejudged(record, known.statements, {}) if known else record
    record.write(path)
    record = judge(path.parent).get(path.stem, record)
    shutil.rmtree(cells, ignore_errors=True)
    _show(record, path)


def _show(record: Record, path: Path) -> None:
    """Draw the figure of a record, and print its table and claims."""
    from osculate import plots

    figure = plots.save(REGISTRY[record.id].draw(record), path.with_suffix(".png"))
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
    out, setup = console(), record.setup
    out.print(table)
    out.print(escape(f"Scale {setup.scale}; {len(setup.seeds)} seed{'s' * (len(setup.seeds) > 1)}."), highlight=False)
    for claim in record.findings.claims:
        out.print(escape(str(claim)), highlight=False)


COMMAND = Command(run, (RunOptions, RecordOptions), __doc__ or "", SUBJECT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    return run_alone(COMMAND, "python -m experiments", [separate(word) for word in words])


if __name__ == "__main__":
    sys.exit(main())
