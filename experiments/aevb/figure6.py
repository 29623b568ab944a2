"""Figure 6 of the report on AEVB: activations of encoder and decoder."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from experiments import Claim, Findings, Number, Record, Resumable, experiment, together
from experiments.aevb.cells import DOCUMENT, PUBLISHED, Coders, Fit, Task, draw_curves
from experiments.aevb.lines import Found, Line, train_lines

#: The activation that the document starts from, and the others that it compares.
TANH, RELU, SIGMOID = "tanh", "relu", "sigmoid"
#: A bound that is passed early in training, by which speed is compared.
EARLY = "images until −130 nats, thousands"
PASSED = -130.0
#: What the document calls no substantial gain, in nats.
SMALL = 2.0


@dataclass(frozen=True)
class Settings(Resumable):
    """What is trained.

    Args:
        task: images.
        coders: but for the activation.
        fit: how they are trained.
        activations: their names.
    """

    task: Task = Task()
    coders: Coders = Coders()
    fit: Fit = Fit()
    activations: tuple[str, ...] = (TANH, RELU, SIGMOID, "softplus")


PRESETS = {"small": Settings(), "paper": Settings(Task(train_size=50_000, validation_size=10_000), fit=PUBLISHED)}


@experiment("aevb-figure6", "Activations of encoder and decoder", f"{DOCUMENT}, Figure 6", **PRESETS)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Train with every activation."""
    lines = [_line(settings, activation) for activation in settings.activations]
    found = train_lines(settings.task, lines, seeds, settings.cells, progress)
    numbers = [*found.numbers()]
    for line in lines:
        times = [_until(run) for run in found.runs[line]]
        numbers.append(Number(line.row, EARLY, tuple(t for t in times if t is not None) if None not in times else ()))
    return Findings(tuple(numbers), claims(found, settings), {"curves": found.panels()}, found.seconds)


def _line(settings: Settings, activation: str) -> Line:
    coders = replace(settings.coders, activation=activation)
    return Line(f"{coders.latent} codes", activation, coders, settings.fit)


def _until(run: Any) -> float | None:
    """Thousands of images until the bound is passed."""
    places = [seen for seen, bound in zip(run["seen"], run["validation"], strict=True) if bound > PASSED]
    return places[0] / 1000 if places else None


def claims(found: Found, settings: Settings) -> tuple[Claim, ...]:
    """Verdicts on what the document says of activations."""
    lines = {line.coders.activation: line for line in found.runs}
    repeated = all(len(runs) > 1 for runs in found.runs.values())  # an order of one seed is no verdict
    if not {TANH, RELU, SIGMOID} <= lines.keys() or settings.task.data != "mnist":
        last, early = {}, {}
    else:
        last = {name: found.last(line) for name, line in lines.items()}
        early = {
            name: mean(times) if all(times := [_until(run) or 0 for run in found.runs[line]]) else float("inf")
            for name, line in lines.items()
        }
    bounds = ", ".join(f"{name} {value:.1f}" for name, value in last.items()) or "not measured"
    speeds = ", ".join(f"{name} {value:.0f}" for name, value in early.items()) or "not measured"
    return (
        Claim.judged(
            "ReLU learns the fastest",
            early[RELU] == min(early.values()) if early and repeated else None,
            f"thousands of images until a validation bound of {PASSED:g} nats: {speeds}.",
        ),
        Claim.judged(
            "There are no substantial gains over tanh",
            max(last.values()) - last[TANH] < SMALL if last and repeated else None,
            f"validation bounds after {settings.fit.images:.3g} images: {bounds} (substantial: {SMALL:g} nats).",
        ),
        Claim.judged(
            "The sigmoid learns the slowest, and to the lowest bound",
            together(found.above(line, lines[SIGMOID]) for name, line in lines.items() if name != SIGMOID)
            if early and repeated and early[SIGMOID] == max(early.values())
            else False
            if early and repeated
            else None,
            f"bounds: {bounds}; thousands of images: {speeds}.",
        ),
    )


@measure.figure
def draw(record: Record) -> Any:
    """One line an activation."""
    return draw_curves(record.findings.data["curves"], "Activations of encoder and decoder")
