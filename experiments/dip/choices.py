"""What the reproductions of reconstruction chose on validation images: the penalty, and the rate of dropout."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean
from typing import Any

from experiments import Claim, Findings, Number, Record, Resumable, Runner, clearly, experiment, together
from experiments.dip.cells import (
    CHOSEN_DROPOUT,
    DENSITY,
    DOCUMENT,
    DROPOUTS,
    PSNR,
    TRAINING,
    Scan,
    best_kernel,
    images,
    scored,
)
from osculate.inverse import DeepImagePrior
from osculate.inverse.baselines import mc_dropout
from osculate.inverse.scores import psnr
from osculate.progress import track

#: Loss of PSNR against the best penalty that counts as none, in dB.
ALIKE = 0.3


@dataclass(frozen=True)
class Settings(Resumable):
    """What is tried; seeds count validation images.

    Args:
        scan: what all scans have in common.
        scans: angles and noise; dropout is tried for the first.
        variations: penalties, in nats for a unit of total variation.
        dropouts: rates.
    """

    scan: Scan = Scan()
    scans: tuple[tuple[int, float], ...] = ((10, 0.05), (5, 0.05), (30, 0.05), (10, 0.1))
    variations: tuple[float, ...] = (0.0, 0.05, 0.15, 0.3, 0.5, 1.5, 4.0, 10.0)
    dropouts: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


PRESETS = {"small": Settings(), "paper": Settings(Scan(steps=20_000, dropout_steps=20_000))}


@experiment("dip-choices", "Penalty and dropout of the deep image prior, on validation images", DOCUMENT, **PRESETS)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Fit validation images with every penalty and every rate."""
    runner = Runner(settings.cells, progress)
    scans = [replace(settings.scan, angles=angles, noise=noise) for angles, noise in settings.scans]
    todo = [(scan, number, "penalty", value) for scan in scans for value in settings.variations for number in seeds]
    todo += [(scans[0], number, "dropout", value) for value in settings.dropouts for number in seeds]
    found: dict[tuple[str, str, float], list[dict[str, float]]] = {}
    for scan, number, what, value in track(todo, "fits", len(todo), progress):
        place = (scan.data, scan.angles, f"{scan.noise:g}", number, f"{value:g}")
        values = runner.cached(
            what, place, (scan.steps, scan.dropout_steps, *TRAINING), partial(_fitted, scan, number, what, value)
        )
        found.setdefault((scan.title, what, value), []).append(values)
    numbers = tuple(
        Number(f"{title}: {what} {value:g}", column, tuple(each[column] for each in cells))
        for (title, what, value), cells in found.items()
        for column in cells[0]
    )
    return Findings(numbers, claims(found), {"penalties": _penalties(found)}, runner.seconds)


def _fitted(scan: Scan, number: int, what: str, value: float) -> dict[str, float]:
    truth = images(scan.data)[0][number]
    operator, data, level = scan.measured(truth, 1000 + number)
    if what == "penalty":
        return {PSNR: psnr(DeepImagePrior(variation=value, steps=scan.steps).fit(operator, data, level).image, truth)}
    longer = DeepImagePrior(steps=scan.dropout_steps)
    drawn = mc_dropout(operator, data, level, longer, value, scan.samples, number)[1]
    return {PSNR: psnr(drawn.mean, truth), DENSITY: max(scored(drawn, truth)[DENSITY], best_kernel(drawn, truth))}


def _penalties(found: Mapping[tuple[str, str, float], Sequence[Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """PSNR by scan and penalty."""
    result: dict[str, dict[str, float]] = {}
    for (title, what, value), cells in found.items():
        if what == "penalty":
            result.setdefault(title, {})[f"{value:g}"] = mean(each[PSNR] for each in cells)
    return result


def claims(found: Mapping[tuple[str, str, float], Sequence[Mapping[str, float]]]) -> tuple[Claim, ...]:
    """Whether what was chosen is what these images say."""
    enough = min(map(len, found.values())) > 1
    chosen = f"{DeepImagePrior.variation:g}"
    losses = {title: max(row.values()) - row.get(chosen, -float("inf")) for title, row in _penalties(found).items()}
    of = {value: [each[DENSITY] for each in cells] for (_, what, value), cells in found.items() if what == "dropout"}
    rates = {value: mean(densities) for value, densities in of.items()}
    best = max(rates, key=lambda rate: rates[rate])
    others = [clearly([a - b for a, b in zip(of[best], of[rate], strict=True)]) for rate in rates if rate != best]
    return (
        Claim.judged(
            f"One penalty, {chosen} nats for a unit of total variation, is within {ALIKE} dB of the best of those "
            "tried, in every scan",
            max(losses.values()) <= ALIKE if enough else None,
            ", ".join(f"{title}: {loss:.2f} dB below" for title, loss in losses.items()) + ".",
        ),
        Claim.judged(
            f"The rate of dropout in {CHOSEN_DROPOUT!r} has the highest mean density",
            best == DROPOUTS[CHOSEN_DROPOUT] if enough else None,
            ", ".join(f"p = {rate:g}: {density:.3f}" for rate, density in rates.items()) + " nats a pixel.",
        ),
        Claim.judged(
            "The rate with the highest mean density is better than every other by two standard errors",
            together(others),
            f"p = {best:g}, better than {others.count(True)} of {len(others)}, of {len(of[best])} images.",
        ),
    )


@measure.figure
def draw(record: Record) -> Any:
    """PSNR by scan and penalty."""
    import numpy as np

    from osculate import plots

    rows = record.findings.data["penalties"]
    penalties = list(next(iter(rows.values())))
    return plots.heat_map(
        {"": np.array([[row[penalty] for penalty in penalties] for row in rows.values()])},
        ("scan", list(rows)),
        ("nats for a unit of total variation", penalties),
        "Which penalty each scan asks for",
        "PSNR of validation images, dB",
    )
