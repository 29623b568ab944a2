"""Section 7 of the tutorial on linearised Laplace: do the error bars hold what they promise? Laplace and dropout."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from experiments import Claim, Findings, Number, Record, Resumable, Runner, clearly, experiment, together
from experiments.dip.cells import (
    CHOSEN_DROPOUT,
    DOCUMENT,
    DROPOUT,
    ENSEMBLE,
    LINEARISED,
    UNIT,
    Scan,
    cell,
)
from osculate.inverse import IndependentImage
from osculate.inverse.scores import LEVELS, covered, grouped
from osculate.progress import track

EVIDENCE, WITH_TV = tuple(LINEARISED)[:2]
COMPARED = (EVIDENCE, WITH_TV, DROPOUT, CHOSEN_DROPOUT, ENSEMBLE, UNIT)
MISCALIBRATION, RANKS = "mean error of coverage", "rank correlation of error bar and error, over groups"
#: Pixels that the deep image prior has between these: the others are background, or ink through and through to it.
BETWEEN = (0.05, 0.95)
WITHIN = f"the same of pixels that the deep image prior has between {BETWEEN[0]:g} and {BETWEEN[1]:g}"


@dataclass(frozen=True)
class Settings(Resumable):
    """Which images: the seeds count them.

    Args:
        scan: how they are measured.
    """

    scan: Scan = Scan()


PRESETS = {"small": Settings(), "paper": Settings(Scan(steps=20_000, dropout_steps=20_000, members=10))}


@experiment(
    "dip-calibration", "Calibration of reconstructed images: linearised Laplace and dropout", DOCUMENT, **PRESETS
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Coverage at every level, and errors by groups of error bars, over the pixels of all images."""
    runner = Runner(settings.cells, progress)
    cells = [cell(settings.scan, number, runner) for number in track(seeds, "images", len(seeds), progress)]
    covered = {method: [_coverage(each, method) for each in cells] for method in COMPARED}
    within = {method: [_coverage(each, method, BETWEEN) for each in cells] for method in COMPARED}
    numbers = [
        Number(method, column, tuple(_distance(curve) for curve in curves))
        for column, found in ((MISCALIBRATION, covered), (WITHIN, within))
        for method, curves in found.items()
    ]
    groups = {method: _groups(cells, method) for method in COMPARED if method != UNIT}
    for method, (expected, found) in groups.items():
        numbers.append(Number(method, RANKS, (_ranks(expected, found),)))
    lines = {method: [mean(column) for column in zip(*curves, strict=True)] for method, curves in covered.items()}
    return Findings(
        tuple(numbers),
        claims(covered, within, groups),
        {"levels": LEVELS, "covered": lines, "groups": groups},
        runner.seconds,
    )


def _pixels(found: Mapping[str, Any], method: str) -> tuple[Tensor, Tensor, Tensor]:
    """Truth, reconstruction and error bar of every pixel (1, D)."""
    shown = found["shown"][method]
    truth, mean_, deviation = (
        torch.tensor(part).reshape(1, -1) for part in (found["truth"], shown["mean"], shown["deviation"])
    )
    return truth, mean_, deviation.clamp(min=1e-4)


def _coverage(
    found: Mapping[str, Any], method: str, between: tuple[float, float] = (-math.inf, math.inf)
) -> list[float]:
    truth, mean_, deviation = _pixels(found, method)
    fitted = _pixels(found, UNIT)[1]  # the same for all methods, and known without the truth
    kept = (fitted > between[0]) & (fitted < between[1])
    return covered(IndependentImage(mean_[kept][None], deviation[kept][None].square()), truth[kept][None])


def _distance(curve: Sequence[float]) -> float:
    return mean(abs(found - level) for found, level in zip(curve, LEVELS, strict=True))


def _groups(cells: Sequence[Mapping[str, Any]], method: str) -> tuple[list[float], list[float]]:
    pixels = [_pixels(found, method) for found in cells]
    truth, mean_, deviation = (torch.cat(parts, 1)[0] for parts in zip(*pixels, strict=True))
    return grouped(truth - mean_, deviation)


def _ranks(expected: Sequence[float], found: Sequence[float]) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(expected, found).statistic)


def claims(
    covered: Mapping[str, Sequence[Sequence[float]]],
    within: Mapping[str, Sequence[Sequence[float]]],
    groups: Mapping[str, tuple[Sequence[float], Sequence[float]]],
) -> tuple[Claim, ...]:
    """The slide's comparison."""
    ratios = {method: _at_the_top(*groups[method]) for method in groups}
    enough = len(covered[DROPOUT]) > 1
    return (
        _closer("Intervals of the linearised model hold", covered),
        _closer(
            f"Of pixels that the deep image prior has between {BETWEEN[0]:g} and {BETWEEN[1]:g}, intervals of the "
            "linearised model hold",
            within,
        ),
        Claim.judged(
            "Where error bars are largest, errors of the linearised model are within a factor of 1.5 of them, and "
            f"those of {DROPOUT} are not",
            all(2 / 3 <= ratios[method] <= 1.5 for method in (EVIDENCE, WITH_TV))
            and not 2 / 3 <= ratios[DROPOUT] <= 1.5
            if enough
            else None,
            "error over error bar in the highest twentieth: "
            + ", ".join(f"{method} {ratio:.2f}" for method, ratio in ratios.items())
            + ".",
        ),
    )


def _closer(words: str, covered: Mapping[str, Sequence[Sequence[float]]]) -> Claim:
    """Whether both linearised models promise more truly than both dropouts."""
    distances = {method: [_distance(curve) for curve in curves] for method, curves in covered.items()}
    verdict = together(
        clearly([b - a for a, b in zip(distances[ours], distances[other], strict=True)])
        for ours in (EVIDENCE, WITH_TV)
        for other in (DROPOUT, CHOSEN_DROPOUT)
    )
    told = ", ".join(f"{method} {mean(values):.3f}" for method, values in distances.items())
    return Claim.judged(
        f"{words} more nearly what they promise than those of dropout, by two standard errors",
        verdict,
        f"mean distance of coverage and level: {told}.",
    )


def _at_the_top(expected: Sequence[float], found: Sequence[float]) -> float:
    return found[-1] / expected[-1]


@measure.figure
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
