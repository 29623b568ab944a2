"""Section 7 of the tutorial on linearised Laplace: the blocks of the network that the evidence uses."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np

from experiments import Claim, Findings, Record, Resumable, Runner, Table, experiment
from experiments.dip import cells
from osculate.inverse import DeepImagePrior, ErrorBars, LinearisedModel
from osculate.inverse.evidence import Tuned

#: Arguments of the evidence by name: the weights that it is expanded around, and TV-PredCP.
OBJECTIVES = {
    "network's weights": ("map", False),
    "network's weights, TV-PredCP": ("map", True),
    "towards the linear mode with TV": ("linear_tv", False),
    "exact": ("linear", False),
}
SHARE, VARIANCE = "share of the prior variance of the data", "log variance"
#: e^(−1/ℓ), since all length-scales much shorter than a pixel are the same prior.
NEIGHBOURS = "prior correlation of neighbouring entries of a filter"
ENDS = "variances at an end of their range"
#: Share below which a block is switched off.
OFF = 1e-4


#: Values of one image by objective, block and column.
Blocks = Mapping[str, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True)
class Settings(Resumable):
    """The scan. Seeds count images.

    Args:
        scan: Measurement of the images.
        linear_steps: Steps towards the mode of the linear model.
    """

    scan: cells.Scan = cells.Scan()
    linear_steps: int = 1000


@experiment(
    "dip-ard",
    "Blocks of a deep image prior that the evidence switches off",
    cells.DOCUMENT,
    paper=Settings(cells.Scan(steps=20_000)),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Tune the prior of every image by every objective."""
    scan = settings.scan
    about = (scan.steps, settings.linear_steps, *cells.TRAINING)
    images = [
        runner.cached("ard", (*scan.place, number), about, lambda: tuned(settings, number))  # noqa: B023
        for number in runner.track(seeds, "images")
    ]
    blocks = [each["blocks"] for each in images]
    rows = {(name, block): [each[name][block] for each in blocks] for name in OBJECTIVES for block in blocks[0][name]}
    table = Table.of(rows, ": ".join)
    for objective in OBJECTIVES:
        table[f"{objective}: all blocks", ENDS] = [float(each["at ends"][objective]) for each in images]
    shares = {
        objective: {block: mean(each[objective][block][SHARE] for each in blocks) for block in blocks[0][objective]}
        for objective in OBJECTIVES
    }
    return Findings(table.numbers(), claims(blocks), {"shares": shares})


def tuned(settings: Settings, number: int) -> dict[str, Any]:
    """Tune the prior of one image by every objective."""
    scan = settings.scan
    operator, data, level = scan.measured(cells.images(scan.data)[1][number], number)
    fitted = DeepImagePrior(steps=scan.steps).fit(operator, data, level, number)
    model = LinearisedModel(operator, data, fitted, level, ErrorBars(linear_steps=settings.linear_steps))
    found = {name: model.tune(*objective, level) for name, objective in OBJECTIVES.items()}
    ends = {name: each.at_ends for name, each in found.items()}
    return {"blocks": {name: by_block(model, each) for name, each in found.items()}, "at ends": ends}


def by_block(model: LinearisedModel, tuned: Tuned) -> dict[str, dict[str, float]]:
    """Return the share of the prior variance of the data, and the hyperparameters, of each block."""
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


def claims(images: Sequence[Blocks]) -> Iterator[Claim]:
    """Judge automatic relevance determination, and the changes by TV-PredCP."""
    enough = len(images) > 1
    plain, smooth = list(OBJECTIVES)[:2]
    blocks = len(images[0][plain])

    def switched_off(name: str, objective: str) -> Claim:
        off = [sum(values[SHARE] < OFF for values in each[objective].values()) for each in images]
        return Claim.judged(
            f"{name} switches off blocks of the network, in every image",
            min(off) > 0 if enough else None,
            f"blocks of {blocks} with less than {OFF:g} of the prior variance, on average: {mean(off):.1f}.",
        )

    def moved(column: str) -> list[float]:
        return [
            mean(
                values[column] - each[plain][block][column]
                for block, values in each[smooth].items()
                if column in values
            )
            for each in images
        ]

    variances, correlations = moved(VARIANCE), moved(NEIGHBOURS)
    yield switched_off("The exact evidence", "exact")
    yield switched_off("The evidence around the network's weights", plain)
    yield Claim.judged(
        "TV-PredCP leads to smaller variances, in every image",
        max(variances) < 0 if enough else None,
        f"mean change of log variances {mean(variances):+.2f}. For filters of several entries the prior is a density "
        "of the length-scale given the variance, without its normaliser, as in the document. With it, the expected "
        "variation would count only above its value for tiny length-scales, and would hardly pull on these variances.",
    )
    yield Claim.judged(
        "TV-PredCP leads to longer length-scales: neighbouring entries correlate more, in every image",
        min(correlations) > 0 if enough else None,
        f"mean change of the correlation {mean(correlations):+.4f}. Images of longer ones vary more: it is the "
        "change of variables in the prior's density, not the expected variation, that asks for them.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Draw the shares of the blocks, by objective."""
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
