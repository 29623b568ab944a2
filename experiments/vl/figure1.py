"""Test scores against the weight of the divergence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from experiments import Claim, Findings, Number, Record, Resumable, Runner, experiment
from experiments.vl.cells import (
    LAPLACE,
    MAXIMUM,
    PUBLISHED,
    TITLES,
    VARIATIONAL,
    Fit,
    Run,
    Task,
    cell,
    published,
)
from experiments.vl.table1 import DRAWN
from osculate.progress import track

#: Scores of the record, with their headings.
SCORES = {"nll": "test NLL, nats", "accuracy": "accuracy", "ece": "ECE"}


@dataclass(frozen=True)
class Settings(Resumable):
    """What is trained.

    Args:
        task: images and network.
        fit: how networks are trained.
        temperatures: β.
        methods: by name.
    """

    task: Task = Task()
    fit: Fit = Fit()
    temperatures: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3)
    methods: tuple[str, ...] = (MAXIMUM, LAPLACE, VARIATIONAL)


PRESETS = {
    "small": Settings(),
    "paper": Settings(
        published("cifar10"),
        PUBLISHED,
        temperatures=(0.01, 0.03, 0.1, 0.3, 1.0),
    ),
}


@experiment(
    "vl-figure1", "Scores against the weight of the divergence", "Variational Laplace [unlu2021], Figure 1", **PRESETS
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Scores at the best validation epoch of each training."""
    runner = Runner(settings.cells, progress)
    todo = [(method, beta, seed) for method in settings.methods for beta in settings.temperatures for seed in seeds]
    found: dict[tuple[str, float], list[Mapping[str, Any]]] = {}
    for method, beta, seed in track(todo, "trainings", len(todo), progress):
        run = Run(settings.task, settings.fit, method, beta, seed)
        kept = cell(run, runner)
        found.setdefault((method, beta), []).append(kept["best"]["test"])
        if "test, drawn" in kept["best"] and method == VARIATIONAL:
            found.setdefault((DRAWN, beta), []).append(kept["best"]["test, drawn"])
    numbers = [
        Number(f"{method}, β = {beta:g}", heading, tuple(scores[name] for scores in rows))
        for (method, beta), rows in found.items()
        for name, heading in SCORES.items()
    ]
    curves = {
        method: {
            f"{beta:g}": {name: [scores[name] for scores in rows] for name in SCORES}
            for (other, beta), rows in found.items()
            if other == method
        }
        for method, _ in found
    }
    return Findings(tuple(numbers), _claims(curves, settings), {"curves": curves}, runner.seconds)


def _claims(curves: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]], settings: Settings) -> tuple[Claim, ...]:
    if not {LAPLACE, VARIATIONAL, MAXIMUM} <= curves.keys():
        return ()
    better = []
    for beta in curves[LAPLACE]:
        nll = {method: mean(curves[method][beta]["nll"]) for method in (LAPLACE, VARIATIONAL, MAXIMUM)}
        if nll[LAPLACE] < min(nll[VARIATIONAL], nll[MAXIMUM]):
            better.append(beta)
    told = "; ".join(
        f"β = {beta}: " + ", ".join(f"{method} {mean(curves[method][beta]['nll']):.3f}" for method in settings.methods)
        for beta in curves[LAPLACE]
    )
    return (
        Claim.judged(
            "For many values of β VL has a lower test NLL than VI and MAP at the same β",
            2 * len(better) > len(curves[LAPLACE]),
            f"it is so at {len(better)} of {len(curves[LAPLACE])} values. {told}. Held-out images choose "
            "the epoch of each.",
        ),
    )


@measure.figure
def draw(record: Record) -> Any:
    """One panel a score, one line a method."""
    from experiments.figures import against_temperature

    curves, settings = record.findings.data["curves"], record.setup.settings
    betas = [f"{beta:g}" for beta in settings["temperatures"]]
    panels = {
        heading: {
            method: [list(row) for row in zip(*(points[beta][name] for beta in betas), strict=True)]
            for method, points in curves.items()
        }
        for name, heading in SCORES.items()
    }
    return against_temperature(
        settings["temperatures"],
        panels,
        f"{TITLES.get(settings['task']['data'])}: scores against the weight of the divergence, β = T",
    )
