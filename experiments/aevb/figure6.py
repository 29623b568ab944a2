"""Figure 6 of the report on AEVB: activations of encoder and decoder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from experiments import Findings, Runner, experiment
from experiments.aevb import cells
from experiments.aevb.cells import DIGITS, DOCUMENT, PUBLISHED, Line

#: Column of the speed: images until an early bound is passed.
EARLY, PASSED = "images until −130 nats, thousands", -130.0


@dataclass(frozen=True)
class Settings(cells.Settings):
    """Trainings that differ in the activation.

    Args:
        activations: Names of the activations, the document's default first.
    """

    activations: tuple[str, ...] = ("tanh", "relu", "sigmoid", "softplus")


@experiment(
    "aevb-figure6",
    "Activations of encoder and decoder",
    f"{DOCUMENT}, Figure 6",
    paper=Settings(DIGITS, fit=PUBLISHED),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train with every activation."""
    found = cells.train_lines(lines(settings), seeds, runner)
    table = found.table()
    for name, line in found.lines.items():
        times = [_passed(run) for run in found.runs[name]]
        table[line.row, EARLY] = [time for time in times if time is not None] if None not in times else []
    return Findings(table.numbers(), (), {"curves": found.panels})


def lines(settings: Settings) -> dict[str, Line]:
    """Return the trainings by activation."""
    task, coders = settings.task, settings.coders
    panel = f"{coders.latent} codes"
    return {
        name: Line(task, replace(coders, activation=name), settings.fit, panel, name) for name in settings.activations
    }


def _passed(run: Mapping[str, Any]) -> float | None:
    """Return the thousands of images until the early bound is passed."""
    return next((s / 1000 for s, bound in zip(run["seen"], run["validation"], strict=True) if bound > PASSED), None)


#: One line per activation.
measure.figure(partial(cells.draw_curves, heading="Activations of encoder and decoder"))
