"""Section 7 of the tutorial on linearised Laplace: which parts of the network the evidence uses."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Any

from experiments import Claim, Findings, Number, Record, Resumable, Runner, experiment
from experiments.dip.cells import DOCUMENT, TRAINING, Scan, images
from osculate.inverse import DeepImagePrior, ErrorBars, LinearisedModel
from osculate.inverse.evidence import Tuned
from osculate.progress import track

#: Objectives, by name: around which weights, and whether with TV-PredCP.
OBJECTIVES = {
    "network's weights": ("map", False),
    "network's weights, TV-PredCP": ("map", True),
    "towards the linear mode with TV": ("linear_tv", False),
    "exact": ("linear", False),
}
SHARE, VARIANCE = "share of the prior variance of the data", "log variance"
#: e^(−1/ℓ) tells what a length-scale does: all that are much shorter than a pixel are the same prior.
NEIGHBOURS = "prior correlation of neighbouring entries of a filter"
ENDS = "variances at an end of their range"
#: A block whose share is smaller is switched off.
OFF = 1e-4


@dataclass(frozen=True)
class Settings(Resumable):
    """Which images: the seeds count them.

    Args:
        scan: how they are measured.
        linear_steps: towards the mode of the linear model.
    """

    scan: Scan = Scan()
    linear_steps: int = 1000


PRESETS = {"small": Settings(), "paper": Settings(Scan(steps=20_000))}


@experiment("dip-ard", "Blocks of a deep image prior that the evidence switches off", DOCUMENT, **PRESETS)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Tune every image's prior by every objective."""
    runner, scan = Runner(settings.cells, progress), settings.scan
    place = (scan.data, scan.angles, f"{scan.noise:g}")
    cells = [
        runner.cached(
            "ard", (*place, number), (scan.steps, settings.linear_steps, *TRAINING), partial(_tuned, settings, number)
        )
        for number in track(seeds, "images", len(seeds), progress)
    ]
    numbers = [
        Number(f"{objective}: {block}", column, tuple(each["blocks"][objective][block][column] for each in cells))
        for objective in OBJECTIVES
        for block, values in cells[0]["blocks"][objective].items()
        for column in values
    ]
    numbers += [
        Number(f"{name}: all blocks", ENDS, tuple(float(each["at ends"][name]) for each in cells))
        for name in OBJECTIVES
    ]
    blocks = [each["blocks"] for each in cells]
    return Findings(tuple(numbers), claims(blocks), {"shares": _shares(blocks)}, runner.seconds)


def _tuned(settings: Settings, number: int) -> dict[str, Any]:
    scan = settings.scan
    operator, data, level = scan.measured(images(scan.data)[1][number], number)
    how = DeepImagePrior(steps=scan.steps)
    bars = ErrorBars(linear_steps=settings.linear_steps)
    model = LinearisedModel(operator, data, how.fit(operator, data, level, number), level, bars)
    found = {name: model.tune(*which, level) for name, which in OBJECTIVES.items()}
    ends = {name: tuned.at_ends for name, tuned in found.items()}
    return {"blocks": {name: _blocks(model, tuned) for name, tuned in found.items()}, "at ends": ends}


def _blocks(model: LinearisedModel, tuned: Tuned) -> dict[str, dict[str, float]]:
    """Of each block: how much of the variance of the data it makes a priori, and its values."""
    traces = model.observed.grams.diagonal(dim1=1, dim2=2).sum(1)
    result, first = {}, 0
    weights = tuned.prior.class_weights()
    for number, (block, own) in enumerate(zip(tuned.prior.blocks, weights, strict=True)):
        values = {SHARE: float(own @ traces[first : first + len(own)])}
        first += len(own)
        values[VARIANCE] = float(tuned.prior.variance[number].log())
        if block.positions > 1:
            values[NEIGHBOURS] = math.exp(-1 / float(tuned.prior.lengthscale[number]))
        result[block.name] = values
    total = sum(values[SHARE] for values in result.values())
    for values in result.values():
        values[SHARE] /= total
    return result


def _shares(cells: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    return {
        objective: {block: mean(each[objective][block][SHARE] for each in cells) for block in cells[0][objective]}
        for objective in OBJECTIVES
    }


def claims(cells: Sequence[Mapping[str, Any]]) -> tuple[Claim, ...]:
    """Automatic relevance determination, and what TV-PredCP changes."""
    enough = len(cells) > 1
    off = {
        objective: [sum(values[SHARE] < OFF for values in each[objective].values()) for each in cells]
        for objective in OBJECTIVES
    }
    plain, smooth = list(OBJECTIVES)[:2]

    def moved(column: str) -> list[float]:
        return [
            mean(
                values[column] - each[plain][block][column]
                for block, values in each[smooth].items()
                if column in values
            )
            for each in cells
        ]

    variances, correlations = moved(VARIANCE), moved(NEIGHBOURS)
    blocks = len(cells[0][plain])
    return (
        *(
            Claim.judged(
                f"{name} switches off blocks of the network, in every image",
                min(off[objective]) > 0 if enough else None,
                f"blocks of {blocks} with less than {OFF:g} of the prior variance, on average: "
                f"{mean(off[objective]):.1f}.",
            )
            for name, objective in (
                ("The exact evidence", "exact"),
                ("The evidence around the network's weights", plain),
            )
        ),
        Claim.judged(
            "TV-PredCP leads to smaller variances, in every image",
            max(variances) < 0 if enough else None,
            f"mean change of log variances {mean(variances):+.2f}. For filters of several entries the prior is a "
            "density of the length-scale given the variance, without its normaliser, as in the document. With it, the "
            "expected variation would count only above its value for tiny length-scales, and would hardly pull on "
            "these variances.",
        ),
        Claim.judged(
            "TV-PredCP leads to longer length-scales: neighbouring entries correlate more, in every image",
            min(correlations) > 0 if enough else None,
            f"mean change of the correlation {mean(correlations):+.4f}. Images of longer ones vary more: it is the "
            "change of variables in the prior's density, not the expected variation, that asks for them.",
        ),
    )


@measure.figure
def draw(record: Record) -> Any:
    """Shares of the blocks, by objective."""
    import numpy as np

    from osculate import plots

    shares = record.findings.data["shares"]
    blocks = list(next(iter(shares.values())))
    table = np.array([[np.log10(max(values[block], 1e-12)) for block in blocks] for values in shares.values()])
    return plots.heat_map(
        {"": table},
        ("evidence around", list(shares)),
        ("block of the network", blocks),
        "Which parts of the network the evidence uses",
        "log10 of the share of the prior variance",
    )
