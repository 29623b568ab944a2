"""Figure 6 of the report on AEVB: activations of encoder and decoder."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean
from typing import Any

from experiments import Claim, Findings, Runner, experiment, listed, together
from experiments.aevb import cells
from experiments.aevb.cells import DIGITS, DOCUMENT, PUBLISHED, Line, Trained

#: The document's default activation, and the others that it compares.
TANH, RELU, SIGMOID = "tanh", "relu", "sigmoid"
#: Column of the speed: images until an early bound is passed.
EARLY, PASSED = "images until −130 nats, thousands", -130.0
#: Largest difference in nats that is not substantial.
SMALL = 2.0


@dataclass(frozen=True)
class Settings(cells.Settings):
    """Trainings that differ in the activation.

    Args:
        activations: Names of the activations.
    """

    activations: tuple[str, ...] = (TANH, RELU, SIGMOID, "softplus")


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
    return Findings(table.numbers(), claims(found, settings), {"curves": found.panels})


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


def claims(found: Trained, settings: Settings) -> Iterator[Claim]:
    """Yield the verdicts on claims about activations."""
    repeated = all(len(runs) > 1 for runs in found.runs.values())  # an order of one seed is no verdict
    last, early = {}, {}
    if {TANH, RELU, SIGMOID} <= found.runs.keys() and settings.task.data == "mnist":
        for name, runs in found.runs.items():
            times = [_passed(run) or 0 for run in runs]
            last[name], early[name] = found.last(name), mean(times) if all(times) else float("inf")
    bounds, speeds = listed(last, ".1f") or "not measured", listed(early, ".0f") or "not measured"
    slowest = None
    if early and repeated:
        lowest = together(found.above(name, SIGMOID) for name in found.runs if name != SIGMOID)
        slowest = lowest if early[SIGMOID] == max(early.values()) else False
    yield Claim.judged(
        "ReLU learns the fastest",
        early[RELU] == min(early.values()) if early and repeated else None,
        f"thousands of images until a validation bound of {PASSED:g} nats: {speeds}.",
    )
    yield Claim.judged(
        "There are no substantial gains over tanh",
        max(last.values()) - last[TANH] < SMALL if last and repeated else None,
        f"validation bounds after {settings.fit.images:.3g} images: {bounds} (substantial: {SMALL:g} nats).",
    )
    yield Claim.judged(
        "The sigmoid learns the slowest, and to the lowest bound",
        slowest,
        f"bounds: {bounds}; thousands of images: {speeds}.",
    )


#: One line per activation.
measure.figure(partial(cells.draw_curves, heading="Activations of encoder and decoder"))
