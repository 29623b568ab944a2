"""All splits of all UCI sets, each kept once it is measured, and the number of steps that held-out data choose."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from experiments import Runner
from experiments.linlap.uci_splits import (
    CONSTANT,
    GAP,
    STANDARD,
    STEPS,
    Baseline,
    Settings,
    baselines,
    cell,
    validation,
)
from osculate.progress import track

#: By set, a value a split by column.
Cells = dict[str, dict[str, list[float]]]


def measure_cells(settings: Settings, splits: str, seeds: Sequence[int], progress: bool) -> tuple[Cells, float]:
    """Log likelihood and error of every way to predict, on every split.

    Args:
        settings: what is measured.
        splits: "standard" or "gap".
        seeds: of the initial weights.
        progress: show a progress bar.

    Returns:
        The values, and the seconds that they took, in earlier runs too.
    """
    found: Cells = {name: {} for name in settings.sets}
    steps: dict[tuple[str, int], int] = {}
    todo = [(name, split, seed) for seed in seeds for name in settings.sets for split in chosen(settings, splits, name)]
    runner = Runner(settings.cells, progress)
    for name, split, seed in track(todo, f"{splits} splits", len(todo), progress):
        if (name, seed) not in steps:
            steps[name, seed] = validated_steps(settings, name, splits, seed, runner)
        number, where = steps[name, seed], (name, splits, split, seed)
        about: list[Any] = [number, settings.hidden]
        values = {STEPS: float(number)} | runner.cached("cell", where, about, partial(cell, settings, *where, number))
        if split in chosen(settings, splits, name)[: settings.baseline.splits.of(name)]:
            about += _training(settings.baseline)
            values |= runner.cached("baselines", where, about, partial(baselines, settings, *where, number))
        for column, value in values.items():
            found[name].setdefault(column, []).append(value)
    return found, runner.seconds


def chosen(settings: Settings, splits: str, name: str) -> list[int]:
    """The numbers of the splits of a set that are measured."""
    every = range((STANDARD if splits == "standard" else GAP).get(name, 1))
    skipped = CONSTANT.get(name, ()) if splits == "gap" else ()
    return [split for split in every if split not in skipped][: settings.splits.of(name)]


def validated_steps(settings: Settings, name: str, splits: str, seed: int, runner: Runner) -> int:
    """How many steps the linearised predictive is best after, on held-out parts of the first splits' training data."""
    candidates = settings.steps.of(name)
    if len(candidates) == 1:
        return candidates[0]
    total = dict.fromkeys(candidates, 0.0)
    for split in chosen(settings, splits, name)[: settings.steps.splits]:
        where = (name, splits, split, seed)
        found = runner.cached(
            "validation", where, [*candidates, settings.hidden], partial(validation, settings, *where)
        )
        total = {steps: before + found[str(steps)] for steps, before in total.items()}
    return max(total, key=lambda steps: total[steps])


def _training(baseline: Baseline) -> list[Any]:
    """What the results of the baselines depend on."""
    return [value for name, value in asdict(baseline).items() if name != "splits"]
