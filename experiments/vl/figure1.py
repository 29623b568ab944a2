"""Test scores against the weight of the divergence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from experiments import TITLES, Claim, Findings, Record, Resumable, Runner, Table, experiment, paired
from experiments.by_image import IMAGES, errors_over_images
from experiments.vl import cells
from experiments.vl.cells import LAPLACE, MAXIMUM, NLL, PUBLISHED, VARIATIONAL, Fit, Run, Task

#: Scores of a cell, with their columns in the table.
SCORES = {"nll": NLL, "accuracy": "accuracy", "ece": "ECE"}


@dataclass(frozen=True)
class Settings(Resumable):
    """Trainings.

    Args:
        task: Images and network.
        fit: Settings of the training.
        temperatures: Weights β of the divergence.
        methods: Names of the methods.
    """

    task: Task = Task()
    fit: Fit = Fit()
    temperatures: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3)
    methods: tuple[str, ...] = (MAXIMUM, LAPLACE, VARIATIONAL)


@experiment(
    "vl-figure1",
    "Scores against the weight of the divergence",
    "Variational Laplace [unlu2021], Figure 1",
    paper=Settings(cells.published("cifar10"), PUBLISHED, temperatures=(0.01, 0.03, 0.1, 0.3, 1.0)),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Score each training at its best validation epoch."""

    def best(method: str, beta: float, seed: int) -> dict[str, Any]:
        return cells.cell(Run(settings.task, settings.fit, method, beta, seed), runner)["best"]

    jobs = [(method, beta, seed) for method in settings.methods for beta in settings.temperatures for seed in seeds]
    table = Table()
    curves: dict[str, dict[str, dict[str, list[float]]]] = {}
    losses: dict[str, list[list[Tensor]]] = {}
    for (method, beta), runs in runner.over("trainings", jobs, best).items():
        for row, part in cells.scored_rows(method).items():
            for run in runs:
                table.add(f"{row}, β = {beta:g}", {column: run[part][name] for name, column in SCORES.items()})
            curves.setdefault(row, {})[f"{beta:g}"] = {name: [run[part][name] for run in runs] for name in SCORES}
        losses.setdefault(method, []).append([run[IMAGES][NLL] for run in runs])
    means = {
        method: [{IMAGES: {NLL: torch.stack(over).mean(0)}} for over in zip(*each, strict=True)]
        for method, each in losses.items()
    }
    return Findings(table.numbers(), claims(curves), {"curves": curves, paired.ERRORS: errors_over_images(means)})


def claims(curves: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]) -> Iterator[Claim]:
    """Count the values of β at which VL is best; no claim without all three methods."""
    methods = (LAPLACE, VARIATIONAL, MAXIMUM)
    if not set(methods) <= curves.keys():
        return
    nlls = [[mean(curves[method][beta]["nll"]) for method in methods] for beta in curves[LAPLACE]]
    better = sum(ours < min(others) for ours, *others in nlls)
    yield Claim.over_seeds(
        "NLL at the same β",
        f"VL is below both at {better} of {len(nlls)} values of β. Held-out images choose the epoch of each.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Draw one panel per score, one line per method."""
    from experiments.figures import against

    numbers, settings = record.findings.numbers, record.setup.settings
    cells = {(number.row, number.column): number.values for number in numbers}
    methods = dict.fromkeys(number.row.rpartition(", β = ")[0] for number in numbers)
    rows = {method: [f"{method}, β = {beta:g}" for beta in settings["temperatures"]] for method in methods}
    panels = {
        heading: {
            method: [list(seed) for seed in zip(*(cells[row, heading] for row in each), strict=True)]
            for method, each in rows.items()
        }
        for heading in SCORES.values()
    }
    title = TITLES.get(settings["task"]["data"])
    return against(
        "temperature T of the posterior",
        settings["temperatures"],
        panels,
        f"{title}: scores against the weight of the divergence, β = T",
    )
