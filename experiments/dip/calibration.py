"""Section 7 of the tutorial on linearised Laplace: coverage of the error bars of Laplace and of dropout."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from experiments import Findings, Record, Resumable, Runner, Table, experiment
from experiments.dip import cells
from experiments.dip.cells import CHOSEN_DROPOUT, DROPOUT, UNIT, Scan
from osculate.inverse.scores import LEVELS, covered, grouped
from osculate.posteriors import IndependentImage

EVIDENCE, WITH_TV = tuple(cells.LINEARISED)[:2]
COMPARED = (EVIDENCE, WITH_TV, DROPOUT, CHOSEN_DROPOUT, cells.ENSEMBLE, UNIT)
WIDEST = "error over error bar in the highest twentieth"
MISCALIBRATION, RANKS = "mean error of coverage", "rank correlation of error bar and error, over groups"
#: Values of the deep image prior at the pixels that are neither background nor solid ink to it.
BETWEEN = (0.05, 0.95)
WITHIN = f"the same of pixels that the deep image prior has between {BETWEEN[0]:g} and {BETWEEN[1]:g}"


@dataclass(frozen=True)
class Settings(Resumable):
    """The scan. Seeds count images.

    Args:
        scan: Measurement of the images.
        first: First test image; those before it were seen when claims were made.
    """

    scan: Scan = Scan()
    first: int = 10


@experiment(
    "dip-calibration",
    "Calibration of reconstructed images: linearised Laplace and dropout",
    cells.DOCUMENT,
    paper=Settings(Scan(steps=20_000, dropout_steps=20_000, members=10)),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Measure coverage at every level, and errors by groups of error bars, over the pixels of all images."""
    from scipy.stats import spearmanr

    images = [cells.cell(settings.scan, settings.first + seed, runner) for seed in runner.track(seeds, "images")]
    everywhere, within = (
        {method: [coverage(each, method, between) for each in images] for method in COMPARED}
        for between in ((-math.inf, math.inf), BETWEEN)
    )
    groups, table = {}, Table()
    for column, curves in ((MISCALIBRATION, everywhere), (WITHIN, within)):
        table |= {(method, column): distances(each) for method, each in curves.items()}
    for method in COMPARED:
        if method != UNIT:
            parts = [pixels(each, method) for each in images]
            truth, centre, deviation = (torch.cat(part, 1)[0] for part in zip(*parts, strict=True))
            groups[method] = grouped(truth - centre, deviation)
            ranks = float(spearmanr(*groups[method]).statistic)  # nan where all error bars are equal
            table[method, RANKS] = [ranks] if math.isfinite(ranks) else []
            each = [grouped(truth - centre, deviation) for truth, centre, deviation in parts]
            table[method, WIDEST] = [found[-1] / expected[-1] for expected, found in each]
    lines = {method: [mean(column) for column in zip(*curves, strict=True)] for method, curves in everywhere.items()}
    data = {"levels": LEVELS, "covered": lines, "groups": groups}
    return Findings(table.numbers(), (), data)


def pixels(image: Mapping[str, Any], method: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return truth, reconstruction and error bar of every pixel (1, D)."""
    shown = image["shown"][method]
    parts = image["truth"], shown["mean"], shown["deviation"]
    truth, centre, deviation = (torch.tensor(part).reshape(1, -1) for part in parts)
    return truth, centre, deviation.clamp(min=1e-4)


def coverage(image: Mapping[str, Any], method: str, between: tuple[float, float]) -> list[float]:
    """Return the coverage at every level, over the pixels that the deep image prior has between two values."""
    truth, centre, deviation = pixels(image, method)
    fitted = pixels(image, UNIT)[1]  # the same for all methods, and known without the truth
    kept = (fitted > between[0]) & (fitted < between[1])
    return covered(IndependentImage(centre[kept][None], deviation[kept][None].square()), truth[kept][None])


def distances(curves: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean distance of coverage and level, for each image."""
    return [mean(abs(found - level) for found, level in zip(curve, LEVELS, strict=True)) for curve in curves]


@measure.figure
def draw(record: Record) -> Any:
    """Draw coverage against level, and errors against error bars."""
    from osculate import plots

    data = record.findings.data
    groups = {method: (expected, found) for method, (expected, found) in data["groups"].items()}
    heading = "Handwriting from ten X-rays: are the error bars calibrated?"
    return plots.image_calibration(data["levels"], data["covered"], groups, heading)
