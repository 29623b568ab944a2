"""Figure 4 of the report on AEVB: the depth of the encoder and its initial weights."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from experiments import Claim, Findings, Runner, experiment
from experiments.aevb import cells
from experiments.aevb.cells import DIGITS, DOCUMENT, PUBLISHED, Fit, Line

ORTHOGONAL, SMALL, ADAGRAD = "orthogonal weights", "N(0, 0.01²) weights", "N(0, 0.01²) weights, Adagrad"
#: Panels, with their initial weights: ours, the document's, and the document's with its optimiser.
INITIAL = {ORTHOGONAL: "orthogonal", SMALL: "small", ADAGRAD: "small"}
#: Validation bounds by depth, read off the document's figure.
PRINTED = {1: "≈ −105", 2: "≈ −104", 3: "≈ −107", 4: "≈ −205"}


@dataclass(frozen=True)
class Settings(cells.Settings):
    """Trainings that differ in the encoder's depth and initial weights.

    Args:
        depths: Numbers of hidden layers of the encoder.
    """

    fit: Fit = Fit(images=1_000_000)
    depths: tuple[int, ...] = (1, 2, 3, 4)


@experiment(
    "aevb-figure4",
    "The depth of the encoder",
    f"{DOCUMENT}, Figure 4",
    paper=Settings(DIGITS, fit=PUBLISHED),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train every depth from both kinds of initial weights."""
    found = cells.train_lines(lines(settings), seeds, runner)
    numbers = found.table().numbers(printed=found.printed)
    kept = Claim.over_seeds(
        "Four layers from orthogonal weights",
        "N(0, 0.01²) weights of 500 units shrink a signal to a fifth in each layer; orthogonal ones keep it.",
    )
    return Findings(numbers, (kept,), {"curves": found.panels})


def lines(settings: Settings) -> dict[tuple[str, int], Line]:
    """Return the trainings by panel and depth; the document's optimiser has the least and the greatest depth only."""
    found = {}
    for panel, initial in INITIAL.items():
        fit, published = settings.fit, panel == ADAGRAD
        if published:
            fit = replace(fit, optimizer=PUBLISHED.optimizer, lr=PUBLISHED.lr)
        for depth in settings.depths[:: max(1, len(settings.depths) - 1)] if published else settings.depths:
            coders = replace(settings.coders, hidden=settings.coders.hidden[:1] * depth, initialisation=initial)
            printed = PRINTED.get(depth, "") if published and settings.task.data == "mnist" else ""
            name = f"{depth} hidden layer{'s' if depth > 1 else ''}"
            found[panel, depth] = Line(settings.task, coders, fit, panel, name, printed)
    return found


#: One panel per kind of initial weights and optimiser, one line per depth.
measure.figure(partial(cells.draw_curves, heading="The depth of the encoder, and its initial weights"))
