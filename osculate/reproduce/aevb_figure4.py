"""Figure 4 of the report on AEVB: the depth of the encoder, and what its initial weights have to do with it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from osculate.reproduce._base import Reproduction
from osculate.reproduce.aevb_cells import DOCUMENT, PUBLISHED, Coders, Fit, Task, draw_curves
from osculate.reproduce.aevb_lines import Found, Line, together, train_lines
from osculate.reproduce.record import Claim, Findings, Record

#: Initial weights, and what the figure calls them: ours first, then the document's.
INITIAL = {"orthogonal": "orthogonal weights", "small": "N(0, 0.01²) weights"}
#: Validation bounds after training, read off the document's figure.
PRINTED = {1: "≈ −105", 2: "≈ −104", 3: "≈ −107", 4: "≈ −205"}
#: A bound below this is that of a network whose codes know nothing of the image.
STUCK, LEARNT = -180.0, -130.0


@dataclass(frozen=True)
class Settings:
    """What is trained.

    Args:
        task: images.
        coders: but for the encoder's layers and the initial weights.
        fit: how they are trained.
        depths: hidden layers of the encoder.
        cells: folder where trained networks are kept; empty for none.
    """

    task: Task = Task()
    coders: Coders = Coders()
    fit: Fit = Fit(images=1_000_000)
    depths: tuple[int, ...] = (1, 2, 3, 4)
    cells: str = field(default="", metadata={"recorded": False})


PRESETS = {"small": Settings(), "paper": Settings(Task(train_size=50_000, validation_size=10_000), fit=PUBLISHED)}


def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Every depth from both kinds of initial weights."""
    lines = [_line(settings, initial, depth) for initial in INITIAL for depth in settings.depths]
    found = train_lines(settings.task, lines, seeds, settings.cells, progress)
    return Findings(found.numbers(), claims(found, settings), {"curves": found.panels()}, found.seconds)


def _line(settings: Settings, initial: str, depth: int) -> Line:
    hidden = settings.coders.hidden[:1] * depth
    coders = replace(settings.coders, hidden=hidden, initialisation=initial)
    printed = PRINTED.get(depth, "") if initial == "small" and settings.task.data == "mnist" else ""
    return Line(INITIAL[initial], f"{depth} hidden layer{'s' if depth > 1 else ''}", coders, settings.fit, printed)


def claims(found: Found, settings: Settings) -> tuple[Claim, ...]:
    """Verdicts on what the document says of depth."""
    lines = {(line.coders.initialisation, len(line.coders.hidden)): line for line in found.runs}
    last = {which: found.last(line) for which, line in lines.items()}
    on_mnist = settings.task.data == "mnist"
    deep = 4 if 4 in settings.depths and on_mnist else None
    gain = {initial: last[initial, 2] - last[initial, 1] for initial in INITIAL if {1, 2} <= set(settings.depths)}
    told = "; ".join(
        f"{INITIAL[initial]}: " + ", ".join(f"{last[initial, depth]:.1f}" for depth in settings.depths)
        for initial in INITIAL
    )
    images = f"validation bounds after {settings.fit.images:.3g} images, by depth"
    return (
        Claim.judged(
            "With a fourth hidden layer the encoder does not learn",
            None if deep is None else last["small", deep] < STUCK,
            f"{images}: {told}.",
        ),
        Claim.judged(
            "That is owing to the initial weights (ours): from orthogonal ones four layers learn",
            None if deep is None else last["orthogonal", deep] > LEARNT,
            "N(0, 0.01²) weights of 500 units shrink a signal to a fifth in each layer; orthogonal ones keep it. "
            f"{images}: {told}.",
        ),
        Claim.judged(
            "Two hidden layers are slightly better than one",
            together(found.above(lines[kind, 2], lines[kind, 1]) for kind in gain) if on_mnist else None,
            "two less one: "
            + ", ".join(f"{value:+.1f} nats from {INITIAL[initial]}" for initial, value in gain.items())
            + ".",
        ),
    )


def draw(record: Record) -> Any:
    """One panel for each kind of initial weights, one line a depth."""
    return draw_curves(record.findings.data["curves"], "The depth of the encoder, from two kinds of initial weights")


REPRODUCTION = Reproduction(
    "aevb-figure4",
    "The depth of the encoder",
    f"{DOCUMENT}, Figure 4",
    PRESETS,
    measure,
    draw,
)
