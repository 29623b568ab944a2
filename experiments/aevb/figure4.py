"""Figure 4 of the report on AEVB: the depth of the encoder, and what its initial weights have to do with it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments import Claim, Findings, Record, Resumable, experiment, together
from experiments.aevb.cells import DOCUMENT, PUBLISHED, Coders, Fit, Task, draw_curves
from experiments.aevb.lines import Found, Line, train_lines

ORTHOGONAL, SMALL, ADAGRAD = "orthogonal weights", "N(0, 0.01²) weights", "N(0, 0.01²) weights, Adagrad"
#: Panels, with the initial weights of each: ours, the document's, and these with its optimiser too.
INITIAL = {ORTHOGONAL: "orthogonal", SMALL: "small", ADAGRAD: "small"}
#: Validation bounds after training, read off the document's figure.
PRINTED = {1: "≈ −105", 2: "≈ −104", 3: "≈ −107", 4: "≈ −205"}
#: A bound below this is that of a network whose codes know nothing of the image.
STUCK, LEARNT = -180.0, -130.0


@dataclass(frozen=True)
class Settings(Resumable):
    """What is trained.

    Args:
        task: images.
        coders: but for the encoder's layers and the initial weights.
        fit: how they are trained.
        depths: hidden layers of the encoder.
    """

    task: Task = Task()
    coders: Coders = Coders()
    fit: Fit = Fit(images=1_000_000)
    depths: tuple[int, ...] = (1, 2, 3, 4)


PRESETS = {"small": Settings(), "paper": Settings(Task(train_size=50_000, validation_size=10_000), fit=PUBLISHED)}


@experiment("aevb-figure4", "The depth of the encoder", f"{DOCUMENT}, Figure 4", **PRESETS)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Every depth from both kinds of initial weights; with the document's optimiser the ends."""
    lines = [_line(settings, panel, depth) for panel in INITIAL for depth in _depths(settings, panel)]
    found = train_lines(settings.task, lines, seeds, settings.cells, progress)
    return Findings(found.numbers(), claims(found, settings), {"curves": found.panels()}, found.seconds)


def _depths(settings: Settings, panel: str) -> tuple[int, ...]:
    return settings.depths[:: max(1, len(settings.depths) - 1)] if panel == ADAGRAD else settings.depths


def _line(settings: Settings, panel: str, depth: int) -> Line:
    hidden = settings.coders.hidden[:1] * depth
    coders = replace(settings.coders, hidden=hidden, initialisation=INITIAL[panel])
    how = replace(settings.fit, optimizer=PUBLISHED.optimizer, lr=PUBLISHED.lr) if panel == ADAGRAD else settings.fit
    printed = PRINTED.get(depth, "") if panel == ADAGRAD and settings.task.data == "mnist" else ""
    return Line(panel, f"{depth} hidden layer{'s' if depth > 1 else ''}", coders, how, printed)


def claims(found: Found, settings: Settings) -> tuple[Claim, ...]:
    """Verdicts on what the document says of depth."""
    lines = {(line.panel, len(line.coders.hidden)): line for line in found.runs}
    last = {which: found.last(line) for which, line in lines.items()}
    on_mnist = settings.task.data == "mnist"
    deep = 4 if 4 in settings.depths and on_mnist else None
    gain = {panel: last[panel, 2] - last[panel, 1] for panel in INITIAL if {(panel, 1), (panel, 2)} <= last.keys()}
    told = "; ".join(
        f"{panel}: " + ", ".join(f"{value:.1f} ({depth})" for (where, depth), value in last.items() if where == panel)
        for panel in INITIAL
    )
    images = f"validation bounds after {settings.fit.images:.3g} images, by depth"
    return (
        Claim.judged(
            "With a fourth hidden layer, N(0, 0.01²) weights and Adagrad the encoder does not learn",
            None if deep is None else last[ADAGRAD, deep] < STUCK,
            f"{images}: {told}.",
        ),
        Claim.judged(
            "That is owing to the initial weights (ours): from orthogonal ones four layers learn",
            None if deep is None else last[ORTHOGONAL, deep] > LEARNT,
            "N(0, 0.01²) weights of 500 units shrink a signal to a fifth in each layer; orthogonal ones keep it. "
            f"{images}: {told}.",
        ),
        Claim.judged(
            "Two hidden layers are slightly better than one",
            together(found.above(lines[panel, 2], lines[panel, 1]) for panel in gain) if on_mnist else None,
            "two less one: " + ", ".join(f"{value:+.1f} nats from {panel}" for panel, value in gain.items()) + ".",
        ),
    )


@measure.figure
def draw(record: Record) -> Any:
    """One panel for each kind of initial weights and optimiser, one line a depth."""
    return draw_curves(record.findings.data["curves"], "The depth of the encoder, and its initial weights")
