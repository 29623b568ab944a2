"""Section 7 of the tutorial on linearised Laplace: do the error bars hold what they promise? Laplace and dropout."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from osculate.metrics import coverage
from osculate.progress import track
from osculate.reproduce._base import Reproduction
from osculate.reproduce.dip_cells import (
    BEST_DROPOUT,
    DOCUMENT,
    DROPOUT,
    ENSEMBLE,
    LINEARISED,
    UNIT,
    VERSION,
    Scan,
    cell,
)
from osculate.reproduce.keep import Keep
from osculate.reproduce.record import Claim, Findings, Number, Record

EVIDENCE, WITH_TV = tuple(LINEARISED)[:2]
COMPARED = (EVIDENCE, WITH_TV, DROPOUT, BEST_DROPOUT, ENSEMBLE, UNIT)
#: Shares that central intervals should hold.
LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 20)) + (0.99,)
#: Pixels are sorted by their error bars into that many groups of equal size.
GROUPS = 20
MISCALIBRATION, SLOPE = "mean error of coverage", "rank correlation of error bar and error, over groups"


@dataclass(frozen=True)
class Settings:
    """Which images: the seeds count them.

    Args:
        scan: how they are measured.
        cells: folder where measurements are kept; empty for none.
    """

    scan: Scan = Scan()
    cells: str = field(default="", metadata={"recorded": False})


PRESETS = {"small": Settings(), "paper": Settings(Scan(steps=20_000, dropout_steps=20_000, members=10))}


def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Coverage at every level, and errors by groups of error bars, over the pixels of all images."""
    keep = Keep(settings.cells, VERSION)
    cells = [cell(settings.scan, number, keep) for number in track(seeds, "images", len(seeds), progress)]
    covered = {method: [_coverage(each, method) for each in cells] for method in COMPARED}
    numbers = [
        Number(method, MISCALIBRATION, tuple(_distance(curve) for curve in curves))
        for method, curves in covered.items()
    ]
    groups = {method: _groups(cells, method) for method in COMPARED if method != UNIT}
    for method, (expected, found) in groups.items():
        numbers.append(Number(method, SLOPE, (_ranks(expected, found),)))
    lines = {method: [mean(column) for column in zip(*curves, strict=True)] for method, curves in covered.items()}
    return Findings(
        tuple(numbers), claims(covered, groups), {"levels": LEVELS, "covered": lines, "groups": groups}, keep.seconds
    )


def _errors(found: Mapping[str, Any], method: str) -> tuple[Tensor, Tensor]:
    """Errors and error bars of all pixels."""
    shown = found["shown"][method]
    truth, mean_, deviation = (
        torch.tensor(part).reshape(-1) for part in (found["truth"], shown["mean"], shown["deviation"])
    )
    return truth - mean_, deviation.clamp(min=1e-4)


def _coverage(found: Mapping[str, Any], method: str) -> list[float]:
    error, deviation = _errors(found, method)
    cdf = torch.distributions.Normal(0.0, deviation).cdf(error)[None]
    return [coverage(cdf, level) for level in LEVELS]


def _distance(curve: Sequence[float]) -> float:
    return mean(abs(found - level) for found, level in zip(curve, LEVELS, strict=True))


def _groups(cells: Sequence[Mapping[str, Any]], method: str) -> tuple[list[float], list[float]]:
    """Root mean square of error bars and of errors, in groups of pixels with similar error bars."""
    parts = [_errors(found, method) for found in cells]
    error, deviation = (torch.cat(both) for both in zip(*parts, strict=True))
    order = deviation.argsort()
    rms = [
        [float(values[group].square().mean().sqrt()) for group in order.tensor_split(GROUPS)]
        for values in (deviation, error)
    ]
    return rms[0], rms[1]


def _ranks(expected: Sequence[float], found: Sequence[float]) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(expected, found).statistic)


def claims(
    covered: Mapping[str, Sequence[Sequence[float]]], groups: Mapping[str, tuple[Sequence[float], Sequence[float]]]
) -> tuple[Claim, ...]:
    """The slide's comparison."""
    means = {method: mean(map(_distance, curves)) for method, curves in covered.items()}
    enough = len(covered[DROPOUT]) > 1
    told = ", ".join(f"{method} {value:.3f}" for method, value in means.items())
    ratios = {method: _at_the_top(*groups[method]) for method in groups}
    return (
        Claim.judged(
            "Intervals of the linearised model hold more nearly what they promise than those of dropout",
            max(means[EVIDENCE], means[WITH_TV]) < min(means[DROPOUT], means[BEST_DROPOUT]) if enough else None,
            f"mean distance of coverage and level: {told}.",
        ),
        Claim.judged(
            "Where error bars are largest, errors of the linearised model are within a factor of 1.5 of them, and "
            "those of dropout with the document's rate are not",
            all(2 / 3 <= ratios[method] <= 1.5 for method in (EVIDENCE, WITH_TV))
            and not 2 / 3 <= ratios[DROPOUT] <= 1.5
            if enough
            else None,
            "error over error bar in the highest twentieth: "
            + ", ".join(f"{method} {ratio:.2f}" for method, ratio in ratios.items())
            + ".",
        ),
    )


def _at_the_top(expected: Sequence[float], found: Sequence[float]) -> float:
    return found[-1] / expected[-1]


def draw(record: Record) -> Any:
    """Coverage against level, and errors against error bars."""
    from osculate import plots

    data = record.findings.data
    groups = {method: (expected, found) for method, (expected, found) in data["groups"].items()}
    return plots.image_calibration(
        data["levels"],
        data["covered"],
        groups,
        "Handwriting from ten X-rays: do error bars hold what they promise?",
    )


REPRODUCTION = Reproduction(
    "dip-calibration",
    "Calibration of reconstructed images: linearised Laplace and dropout",
    DOCUMENT,
    PRESETS,
    measure,
    draw,
)
