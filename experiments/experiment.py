"""A reproduction: settings with presets, a function that measures, and a figure."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from experiments.record import Findings, Record, Setup
from osculate.files import versions
from osculate.randomness import seeded as seeded
from osculate.registry import choose, lookup


@dataclass(frozen=True)
class Reproduction:
    """One table or figure of a document.

    Args:
        id: as it is typed, "lae-figure7".
        title: what it shows.
        document: which document, with the number of the table or figure.
        presets: settings by scale: "small" (two CPU cores, a few minutes) first and "paper" (the document's own) last.
            A field with the metadata ``recorded=False`` says nothing about what is measured, and is left out of the
            record.
        measure: settings, seeds and whether to show progress, to what was found.
        draw: a record to its figure; imports the plots itself.
        peers: distributions beyond our dependencies that it measures where they are installed.
    """

    id: str
    title: str
    document: str
    presets: Mapping[str, Any]
    measure: Callable[[Any, Sequence[int], bool], Findings]
    draw: Callable[[Record], Any]
    peers: tuple[str, ...] = ()

    def run(
        self, scale: str = "small", seeds: int = 3, changes: Mapping[str, Any] | None = None, progress: bool = True
    ) -> Record:
        """Measure, and say how.

        Args:
            scale: name of a preset.
            seeds: number of repetitions, counted from seed 0.
            changes: settings that differ from the preset, by name.
            progress: show progress bars.

        Raises:
            ValueError: an unknown scale or setting, or no seed.
        """
        settings = changed(lookup("scale", scale, self.presets), changes or {})
        if seeds < 1:
            raise ValueError(f"seeds is {seeds}: at least one repetition is needed.")
        started = time.perf_counter()
        findings = self.measure(settings, range(seeds), progress)
        told = [field.name for field in fields(settings) if field.metadata.get("recorded", True)]
        label = ", ".join([scale, *(f"{name} = {getattr(settings, name)}" for name in changes or {} if name in told)])
        setup = Setup(
            label,
            {name: value for name, value in asdict(settings).items() if name in told},
            tuple(range(seeds)),
            round(time.perf_counter() - started if findings.seconds is None else findings.seconds, 1),
            versions(("osculate", *self.peers)),
        )
        return Record(self.id, self.title, self.document, setup, findings)


def changed(settings: Any, changes: Mapping[str, Any]) -> Any:
    """A copy of some settings with other values; lists become tuples, mappings change settings within a setting.

    Raises:
        ValueError: there is no setting of that name.
    """
    values = {}
    for name, value in changes.items():
        choose("setting", name, [f.name for f in fields(settings)])
        if isinstance(value, Mapping):
            value = changed(getattr(settings, name), value)
        values[name] = _frozen(value)
    return replace(settings, **values)


def _frozen(value: Any) -> Any:
    """Lists, and lists within them, as tuples."""
    return tuple(_frozen(part) for part in value) if isinstance(value, list) else value
