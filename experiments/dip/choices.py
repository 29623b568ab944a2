"""Choices for the deep image prior by validation images: the penalty, and the rate of dropout."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

import numpy as np

from experiments import Findings, Record, Resumable, Runner, Table, experiment
from experiments.dip import cells
from experiments.dip.cells import DENSITY, PSNR, Scan
from osculate.inverse import DeepImagePrior
from osculate.inverse.baselines import mc_dropout
from osculate.inverse.scores import psnr

#: Scores of each image by scan, kind of choice, and value.
Found = Mapping[tuple[str, str, float], Sequence[Mapping[str, float]]]


@dataclass(frozen=True)
class Settings(Resumable):
    """The candidates. Seeds count validation images.

    Args:
        scan: Settings of all scans.
        scans: Angles and noise; dropout is tried for the first.
        variations: Penalties, in nats per unit of total variation.
        dropouts: Rates of dropout.
    """

    scan: Scan = Scan()
    scans: tuple[tuple[int, float], ...] = ((10, 0.05), (5, 0.05), (30, 0.05), (10, 0.1))
    variations: tuple[float, ...] = (0.0, 0.05, 0.15, 0.3, 0.5, 1.5, 4.0, 10.0)
    dropouts: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


@experiment(
    "dip-choices",
    "Penalty and dropout of the deep image prior, on validation images",
    cells.DOCUMENT,
    paper=Settings(Scan(steps=20_000, dropout_steps=20_000)),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Fit validation images with every penalty and every rate."""
    scans = [replace(settings.scan, angles=angles, noise=noise) for angles, noise in settings.scans]
    jobs = [(scan, "penalty", value, number) for scan in scans for value in settings.variations for number in seeds]
    jobs += [(scans[0], "dropout", value, number) for value in settings.dropouts for number in seeds]
    found: dict[tuple[str, str, float], list[dict[str, float]]] = {}
    for scan, kind, value, number in runner.track(jobs, "fits"):
        place, about = (*scan.place, number, f"{value:g}"), (scan.steps, scan.dropout_steps, *cells.TRAINING)
        scores = runner.cached(kind, place, about, lambda: fitted(scan, kind, value, number))  # noqa: B023
        found.setdefault((scan.title, kind, value), []).append(scores)
    table = Table.of(found, lambda key: f"{key[0]}: {key[1]} {key[2]:g}")
    return Findings(table.numbers(), (), {"penalties": penalties(found)})


def fitted(scan: Scan, kind: str, value: float, number: int) -> dict[str, float]:
    """Reconstruct one validation image."""
    truth = cells.images(scan.data)[0][number]
    operator, data, level = scan.measured(truth, 1000 + number)
    if kind == "penalty":
        prior = DeepImagePrior(variation=value, steps=scan.steps)
        return {PSNR: psnr(prior.fit(operator, data, level, seed=number).image, truth)}
    longer = DeepImagePrior(steps=scan.dropout_steps)
    drawn = mc_dropout(operator, data, level, longer, value, scan.samples, number)[1]
    return {PSNR: psnr(drawn.mean, truth), DENSITY: cells.scored(drawn, truth, kernels=True)[DENSITY]}


def penalties(found: Found) -> dict[str, dict[str, float]]:
    """Return the PSNR by scan and penalty."""
    result: dict[str, dict[str, float]] = {}
    for (title, kind, value), scores in found.items():
        if kind == "penalty":
            result.setdefault(title, {})[f"{value:g}"] = mean(each[PSNR] for each in scores)
    return result


@measure.figure
def draw(record: Record) -> Any:
    """Draw PSNR by scan and penalty."""
    from osculate import plots

    rows = record.findings.data["penalties"]
    candidates = list(next(iter(rows.values())))
    return plots.heat_map(
        {"": np.array([[row[penalty] for penalty in candidates] for row in rows.values()])},
        ("scan", list(rows)),
        ("nats per unit of total variation", candidates),
        "Validation images by scan and penalty",
        "PSNR of validation images, dB",
    )
