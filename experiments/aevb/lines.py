"""Trainings of one autoencoder that differ in one thing: measured, tabulated and drawn alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from experiments import Number, Runner, clearly
from experiments.aevb.cells import Coders, Fit, Task, fitted
from osculate.autoencoders import VAE
from osculate.progress import track

TRAINED, HELD_OUT = "training bound, nats", "validation bound, nats"
HIGHEST = "highest validation bound on the way, nats"
#: What figures are drawn from: of each panel and line, images seen and bounds.
SHOWN = ("seen", "train", "validation")


@dataclass(frozen=True)
class Line:
    """One training, and where the figure shows it.

    Args:
        panel: of the figure.
        name: of the line.
        coders: encoder and decoder.
        fit: how they are trained.
        printed: the validation bound that the document has, as it prints it.
    """

    panel: str
    name: str
    coders: Coders
    fit: Fit
    printed: str = ""

    @property
    def row(self) -> str:
        """Its row in the table."""
        return f"{self.panel}, {self.name}"


@dataclass(frozen=True)
class Found:
    """What trainings gave.

    Args:
        runs: of each line, one a seed.
        seconds: what all took.
    """

    runs: Mapping[Line, Sequence[Mapping[str, Any]]]
    seconds: float

    def last(self, line: Line, key: str = "validation") -> float:
        """The bound at the end, the mean over seeds."""
        return mean(run[key][-1] for run in self.runs[line])

    def above(self, first: Line, second: Line, key: str = "validation") -> bool | None:
        """Whether the bound at the end of one is clearly above that of the other, seed by seed."""
        pairs = zip(self.runs[first], self.runs[second], strict=True)
        return clearly([a[key][-1] - b[key][-1] for a, b in pairs])

    def numbers(self) -> tuple[Number, ...]:
        """Three cells a line."""
        found = []
        for line, runs in self.runs.items():
            found.append(Number(line.row, TRAINED, tuple(run["train"][-1] for run in runs)))
            found.append(Number(line.row, HELD_OUT, tuple(run["validation"][-1] for run in runs), line.printed))
            found.append(Number(line.row, HIGHEST, tuple(max(run["validation"]) for run in runs)))
        return tuple(found)

    def panels(self) -> dict[str, dict[str, dict[str, list]]]:
        """The curves of the first seed."""
        shown: dict[str, dict[str, dict[str, list]]] = {}
        for line, runs in self.runs.items():
            shown.setdefault(line.panel, {})[line.name] = {key: list(runs[0][key]) for key in SHOWN}
        return shown


def train_lines(
    task: Task,
    lines: Sequence[Line],
    seeds: Sequence[int],
    cells: str,
    progress: bool,
    look: Callable[[Line, VAE, int], Mapping[str, Any]] | None = None,
) -> Found:
    """Train all, or take what is kept.

    Args:
        task: images.
        lines: what is trained.
        seeds: of each.
        cells: folder where trained networks are kept; empty for none.
        progress: show a progress bar.
        look: what else is to be known of a network, beside its curve.
    """
    runner, todo = Runner(cells, progress), [(line, seed) for line in lines for seed in seeds]
    found: dict[Line, list[dict[str, Any]]] = {}
    for line, seed in track(todo, "trainings", len(todo), progress):
        net, values = fitted(task, line.coders, line.fit, seed, runner)
        found.setdefault(line, []).append({**values, **(look(line, net, seed) if look else {})})
    return Found(found, runner.seconds)
