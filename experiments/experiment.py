"""An experiment: settings with presets, a function that measures, and a figure."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import inf
from pathlib import Path
from typing import Any

import torch

from experiments.record import Findings, Origin, Record, Setup
from experiments.runner import Runner
from experiments.sources import minor, origin
from osculate.files import versions
from osculate.registry import choose, lookup

Measure = Callable[[Any, Sequence[int], Runner], Findings]
Draw = Callable[[Record], Any]


@dataclass
class Experiment:
    """One table or figure of a document. The decorator :func:`experiment` makes it.

    Args:
        id: Name on the command line, such as "lae-figure7".
        title: Contents of the table or figure.
        document: Citation of the document, with the number of the table or figure.
        presets: Settings by scale: "small" (two CPU cores, a few minutes) first and "paper" (the document's own) last.
            A field with the metadata ``recorded=False`` has no effect on the results and is left out of the record.
        measure: Function of settings, seeds and a runner, which returns the findings.
        peers: Optional distributions that are compared with where they are installed.
    """

    id: str
    title: str
    document: str
    presets: Mapping[str, Any]
    measure: Measure
    peers: tuple[str, ...] = ()

    def figure(self, draw: Draw) -> Draw:
        """Register the function that draws the figure of a record."""
        self.draw = draw
        return draw

    def run(
        self,
        scale: str = "small",
        seeds: int = 3,
        changes: Mapping[str, Any] | None = None,
        progress: bool = True,
        cells: Path | None = None,
        until: float = inf,
        first: int = 0,
    ) -> Record:
        """Measure at a scale, and return the record.

        Args:
            scale: Name of a preset.
            seeds: Number of repetitions, whose seeds follow each other.
            changes: Settings that differ from the preset, by name.
            progress: Show progress bars.
            cells: Folder of the cells of an interrupted run, unless the settings name one.
            until: Time of :func:`time.monotonic` at which the run ends, between cells.
            first: The first seed.

        Raises:
            ValueError: Unknown scale or setting, or no seed.
            OutOfTime: There is no time for the next cell; the same call goes on with it.
        """
        settings = changed(lookup("scale", scale, self.presets), changes or {})
        if seeds < 1:
            raise ValueError(f"seeds is {seeds}: at least one repetition is needed.")
        repetitions = range(first, first + seeds)
        started, made = time.perf_counter(), self.origin(settings)
        version = self._version(settings, made)
        folder = getattr(settings, "cells", "") or ("" if cells is None else str(cells / version))
        runner = Runner(folder, progress, version, until)
        if hasattr(settings, "cells"):
            settings = replace(settings, cells=folder)
        findings = self.measure(settings, repetitions, runner)
        # the time of cached cells is that of the runs that measured them
        seconds = runner.seconds or time.perf_counter() - started
        recorded = self.recorded(settings)
        differing = [f"{name} = {getattr(settings, name)}" for name in changes or {} if name in recorded]
        setup = Setup(
            ", ".join([scale, *differing]),
            recorded,
            tuple(repetitions),
            round(seconds, 1),
            versions(("osculate", *self.peers)),
            made,
        )
        return Record(self.id, self.title, self.document, setup, findings)

    def recorded(self, settings: Any) -> dict[str, Any]:
        """Return the settings that have an effect on the results."""
        names = [field.name for field in fields(settings) if field.metadata.get("recorded", True)]
        return {name: value for name, value in asdict(settings).items() if name in names}

    def origin(self, settings: Any) -> Origin:
        """Return the code and data that a measurement would be made with now."""
        return origin(self.measure.__module__, self.recorded(settings))

    def _version(self, settings: Any, made: Origin) -> str:
        """A digest of all that cells depend on, since those of other settings or code must not be taken for these."""
        parts = (self.id, settings, sorted(made.code.items()), sorted(made.data.items()), minor(torch.__version__))
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


#: All experiments by id.
REGISTRY: dict[str, Experiment] = {}


def experiment(
    id: str, title: str, document: str, peers: Sequence[str] = (), **presets: Any
) -> Callable[[Measure], Experiment]:
    """Register a function that measures as an experiment.

    Args:
        id: Name on the command line.
        title: Contents of the table or figure.
        document: Citation of the document, with the number of the table or figure.
        peers: Optional distributions that are compared with where they are installed.
        presets: Settings by scale, "paper" last; "small" has the defaults of their class where it is not given.
    """

    def register(measure: Measure) -> Experiment:
        small = {} if "small" in presets else {"small": type(presets["paper"])()}
        REGISTRY[id] = Experiment(id, title, document, small | presets, measure, tuple(peers))
        return REGISTRY[id]

    return register


def changed(settings: Any, changes: Mapping[str, Any]) -> Any:
    """Return a copy of settings with other values; lists become tuples, mappings change nested settings.

    Raises:
        ValueError: There is no setting of that name.
    """

    def frozen(value: Any) -> Any:
        return tuple(frozen(part) for part in value) if isinstance(value, list) else value

    values = {}
    for name, value in changes.items():
        choose("setting", name, [f.name for f in fields(settings)])
        if isinstance(value, Mapping):
            value = changed(getattr(settings, name), value)
        values[name] = frozen(value)
    return replace(settings, **values)
