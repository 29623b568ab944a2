"""Figure 3 of the report on AEVB: codes drawn for each image against images in a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments import Claim, Findings, Record, Resumable, experiment
from experiments.aevb.cells import DOCUMENT, FREY, FREY_CODERS, Coders, Fit, Task
from experiments.aevb.lines import Found, Line, train_lines

#: The batch that the document calls small, and the one that its authors recommend.
FEW, RECOMMENDED = 20, 100


@dataclass(frozen=True)
class Settings(Resumable):
    """What is trained.

    Args:
        task: images.
        coders: encoder and decoder.
        fit: but for the batch and the codes.
        samples: L, codes drawn for each image.
        batches: M, images in a batch.
    """

    task: Task = FREY
    coders: Coders = FREY_CODERS
    fit: Fit = Fit(images=450_000)
    samples: tuple[int, ...] = (1, 2, 4, 8)
    batches: tuple[int, ...] = (20, 60, 100, 140)


PRESETS = {
    "small": Settings(),
    "paper": Settings(fit=Fit(images=3_000_000, lr=0.01, optimizer="adagrad"), samples=tuple(range(1, 9))),
}


@experiment("aevb-figure3", "Codes drawn for each image, and images in a batch", f"{DOCUMENT}, Figure 3", **PRESETS)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Train with every pair."""
    lines = [_line(settings, samples, batch) for samples in settings.samples for batch in settings.batches]
    found = train_lines(settings.task, lines, seeds, settings.cells, progress)
    data = {
        key: [
            [round(found.last(_line(settings, samples, batch), key), 1) for batch in settings.batches]
            for samples in settings.samples
        ]
        for key in ("train", "validation")
    }
    return Findings(found.numbers(), claims(found, settings), data, found.seconds)


def _line(settings: Settings, samples: int, batch: int) -> Line:
    fit = replace(settings.fit, samples=samples, batch=batch)
    return Line(f"L = {samples}", f"M = {batch}", settings.coders, fit)


def claims(found: Found, settings: Settings) -> tuple[Claim, ...]:
    """Verdicts on what the document, and the paper that it examines, say of L and M."""
    last = {
        key: {(line.fit.samples, line.fit.batch): found.last(line, key) for line in found.runs}
        for key in ("train", "validation")
    }
    spreads = {batch: _spread(last["validation"], batch) for batch in settings.batches}
    repeated = min((len(runs) for runs in found.runs.values()), default=0) > 1  # the best of one seed is chance
    several = repeated and len(settings.samples) > 1 and len(settings.batches) > 1
    best = {key: max(values, key=lambda pair: values[pair]) for key, values in last.items()}
    told = ", ".join(f"{spread:.0f} (M = {batch})" for batch, spread in spreads.items())
    seen = f"after {settings.fit.images:.3g} images each"
    return (
        Claim.judged(
            "One code for an image is enough as long as a batch is large, such as 100 [kingma2014]",
            spreads[RECOMMENDED] < min(spreads[FEW], 0.02 * abs(max(last["validation"].values())))
            if several and {FEW, RECOMMENDED} <= spreads.keys()
            else None,
            f"range of the validation bound over L: {told} nats, {seen}.",
        ),
        Claim.judged(
            "The highest training bound is that of batches of 20",
            best["train"][1] == FEW if several and FEW in settings.batches else None,
            f"at L = {best['train'][0]}, M = {best['train'][1]}: {last['train'][best['train']]:.0f} nats, {seen}. A "
            "small batch takes more steps with as many images.",
        ),
        Claim.judged(
            "The highest validation bound is at L = 2, M = 100",
            best["validation"] == (2, 100) if several and (2, 100) in last["validation"] else None,
            f"at L = {best['validation'][0]}, M = {best['validation'][1]}: "
            f"{last['validation'][best['validation']]:.0f} nats, {seen}.",
        ),
    )


def _spread(values: Mapping[tuple[int, int], float], batch: int) -> float:
    over = [value for (_, other), value in values.items() if other == batch]
    return max(over) - min(over)


@measure.figure
def draw(record: Record) -> Any:
    """A map of the bound of training frames, and one of the others."""
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
