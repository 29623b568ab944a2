"""Figure 3 of the report on AEVB: codes drawn for each image against images in a batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from experiments import Claim, Findings, Record, Runner, experiment
from experiments.aevb import cells
from experiments.aevb.cells import DOCUMENT, FREY, FREY_CODERS, Coders, Fit, Line, Task, Trained


@dataclass(frozen=True)
class Settings(cells.Settings):
    """Trainings that differ in L and M.

    Args:
        samples: Numbers of codes drawn for each image, L.
        batches: Batch sizes, M.
    """

    task: Task = FREY
    coders: Coders = FREY_CODERS
    fit: Fit = Fit(images=450_000)
    samples: tuple[int, ...] = (1, 2, 4, 8)
    batches: tuple[int, ...] = (20, 60, 100, 140)


@experiment(
    "aevb-figure3",
    "Codes drawn for each image, and images in a batch",
    f"{DOCUMENT}, Figure 3",
    paper=Settings(fit=Fit(images=3_000_000, lr=0.01, optimizer="adagrad"), samples=tuple(range(1, 9))),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train with every pair of L and M."""
    found = cells.train_lines(lines(settings), seeds, runner)
    data = {
        part: [[round(found.last((few, batch), part), 1) for batch in settings.batches] for few in settings.samples]
        for part in ("train", "validation")
    }
    return Findings(found.table().numbers(), claims(found, settings), data)


def lines(settings: Settings) -> dict[tuple[int, int], Line]:
    """Return the trainings by L and M."""
    task, coders, fit = settings.task, settings.coders, settings.fit
    return {
        (few, batch): Line(task, coders, replace(fit, samples=few, batch=batch), f"L = {few}", f"M = {batch}")
        for few, batch in product(settings.samples, settings.batches)
    }


def claims(found: Trained, settings: Settings) -> Iterator[Claim]:
    """Yield the evidence on claims of the document, and of the paper that it examines, about L and M."""
    by_batch = {batch: [found.last((few, batch)) for few in settings.samples] for batch in settings.batches}
    words = ", ".join(f"{max(bounds) - min(bounds):.0f} (M = {batch})" for batch, bounds in by_batch.items())
    yield Claim.over_seeds(
        "One code for an image",
        "[kingma2014] finds it enough as long as a batch is large, such as 100. Range of the validation bound over L: "
        f"{words} nats.",
    )
    yield Claim.over_seeds("The highest training bound", "A small batch takes more steps with as many images.")


@measure.figure
def draw(record: Record) -> Any:
    """Draw a map of the bound of training frames, and one of validation frames."""
    from osculate import plots

    settings, data = record.setup.settings, record.findings.data
    return plots.heat_map(
        {"training frames": np.array(data["train"]), "frames held out": np.array(data["validation"])},
        ("codes drawn for each frame, L", [str(samples) for samples in settings["samples"]]),
        ("frames in a batch, M", [str(batch) for batch in settings["batches"]]),
        "Frey Face: the bound by codes drawn and frames in a batch",
        "bound on log p(x), nats per frame",
        ".0f",
    )
