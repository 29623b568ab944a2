"""Records that other code, settings or data made than those of today, or too few seeds, in the order to run them."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from re import findall
from typing import Any

import torch

from experiments.documents import DOCUMENTS, artefact
from experiments.experiment import REGISTRY, changed
from experiments.joined import grows, joined
from experiments.record import UNDECIDED, Record, records_in
from experiments.sources import minor

#: Number of parts that a reason names.
FEW = 5
#: Seeds of a headline, and of one that these leave undecided.
HEADLINE, UNCLEAR = 5, 10
#: Beginning of the reason that the code is another.
CODE = "code: "


@dataclass(frozen=True)
class Stale:
    """A record that is to be measured again.

    Args:
        path: Path of the record.
        record: The record.
        headline: A headline claim is decided by it.
        reasons: Differences between today and the day on which it was made, which make it stale.
        seeds: Number of seeds that it is measured with again.
    """

    path: Path
    record: Record
    headline: bool
    reasons: tuple[str, ...]
    seeds: int

    @property
    def short(self) -> str:
        """Seeds of seeds that are wanted, in words; empty if there are as many."""
        had = len(self.record.setup.seeds)
        return f"seeds: {had} of {self.seeds}" if self.seeds > had else ""

    @property
    def hours(self) -> float:
        """Hours that it would take on the machine that made it."""
        return self.record.setup.seconds / 3600 * (self.seeds - self.first) / len(self.record.setup.seeds)

    @property
    def first(self) -> int:
        """First seed to measure: those before it are of today's code, if only seeds are lacking."""
        return 0 if self.reasons or not grows(self.record) else len(self.record.setup.seeds)

    @property
    def cells(self) -> Path:
        """Folder of the cells of an interrupted run."""
        return self.path.with_suffix(".cells")

    def again(self, progress: bool = True, until: float = inf) -> Record:
        """Measure it again with the same scale and changes; or, if only seeds are lacking, these alone.

        Args:
            progress: Show progress bars.
            until: Time of :func:`time.monotonic` at which the run ends, between cells.

        Raises:
            OutOfTime: There is no time for the next cell.

        Warns:
            UserWarning: The lacking seeds cannot be added (:func:`experiments.joined.joined`): all are measured.
        """
        (scale, changes), first = asked(self.record), self.first
        run = REGISTRY[self.record.id].run
        found = run(scale, self.seeds - first, changes, progress, self.cells, until, first)
        try:
            return joined(self.record, found) if first else found
        except ValueError as error:
            warnings.warn(str(error), stacklevel=2)
            return run(scale, self.seeds, changes, progress, self.cells, until)


def stale(folder: Path) -> list[Stale]:
    """Return the records of a folder to measure again, in order.

    Stale ones come first, of these those with headlines; then headlines that only lack seeds. Cheap ones are before
    dear ones.

    Args:
        folder: Folder of records.
    """
    headlines = {each.id for document in DOCUMENTS for each, claim in document.statements() if claim.headline}
    found = []
    for path, record in records_in(folder).items():
        if record.id in REGISTRY:
            wanted = wanted_seeds(path.stem, record)
            each = Stale(path, record, path.stem in headlines, tuple(reasons(record)), wanted)
            if each.reasons or each.short:
                found.append(each)
    return sorted(found, key=lambda each: (not each.reasons, not each.headline, each.hours))


def wanted_seeds(name: str, record: Record) -> int:
    """Return the number of seeds of a record: those that it has, five for headlines, ten if these leave one undecided.

    Splits and tasks count as seeds where a claim is about them.

    Args:
        name: Name of its file.
        record: The record.
    """
    had, known = len(record.setup.seeds), artefact(name)
    counts = {each.text: each.outcome(record).seeds for each in (known.statements if known else ()) if each.headline}
    undecided = {claim.stated for claim in record.findings.claims if claim.verdict == UNDECIDED}
    few = any(0 < count < HEADLINE for count in counts.values())
    unclear = any(HEADLINE <= count < UNCLEAR and text in undecided for text, count in counts.items())
    return max(had, UNCLEAR if unclear else HEADLINE if few else 0)


def reasons(record: Record) -> Iterator[str]:
    """Yield what is another than when a record was made.

    Args:
        record: A record of an experiment that exists.
    """
    setup, chosen = record.setup, REGISTRY[record.id]
    scale, changes = asked(record)
    if scale not in chosen.presets:
        yield f"there is no scale {scale!r} any more"
        return
    settings = changed(chosen.presets[scale], changes)
    now = chosen.origin(settings)
    present = json.loads(json.dumps(chosen.recorded(settings), default=str))  # as a record has them
    if names := _differing(setup.settings, present):
        yield f"settings: {_few(names)}"
    if setup.origin.code:
        if names := _differing(setup.origin.code, now.code):
            yield f"{CODE}{_few(names)}"
    else:
        yield f"{CODE}no digests were kept; its numbers came with {setup.origin.commit or 'an unknown commit'}"
    # what is not on this machine is not known to be another
    both = setup.origin.data.keys() & now.data.keys()
    if names := [name for name in sorted(both) if setup.origin.data[name] != now.data[name]]:
        yield f"data: {_few(names)}"
    before, after = (minor(version) for version in (setup.versions.get("torch", "unknown"), torch.__version__))
    if before != after:
        yield f"torch: {before}, now {after}"


def asked(record: Record) -> tuple[str, dict[str, Any]]:
    """Return the scale that a record was asked for, and the settings that were changed.

    Args:
        record: The record.
    """
    text = record.setup.scale
    return text.split(", ")[0], {name: record.setup.settings[name] for name in findall(r", (\w+) = ", text)}


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:FEW]) + (f" and {len(names) - FEW} more" if len(names) > FEW else "")
