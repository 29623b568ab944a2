"""Section 7 of the tutorial on linearised Laplace: the blocks of the network that the evidence uses."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
import torch

from experiments import Claim, Findings, Record, Resumable, Runner, Table, experiment
from experiments.dip import cells
from osculate.curvature.linearisation import Linearisation
from osculate.evidence.gradient import BOUNDS
from osculate.inverse import DeepImagePrior, LinearisedImage, total_variation
from osculate.inverse.dip import own_unit
from osculate.posteriors import Gaussian
from osculate.priors import Filters
from osculate.structures.blocks import Correlated, DualBlock

TOWARDS = "towards the linear mode with TV"
#: Learning rate and weight decay of the way to that mode.
RATE, DECAY = 1e-4, 1e-6
#: Arguments of the evidence by name: the weights that it is expanded around, and TV-PredCP.
OBJECTIVES = {
    "network's weights": ("network", False),
    "network's weights, TV-PredCP": ("network", True),
    TOWARDS: ("", False),
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
        first: First test image; those before it were seen when claims were made.
    """

    scan: cells.Scan = cells.Scan()
    linear_steps: int = 1000
    first: int = 10


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
        for number in runner.track([settings.first + seed for seed in seeds], "images")
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
    image = LinearisedImage(operator, data, fitted, level)
    found = {name: image.tuned(*objective) for name, objective in OBJECTIVES.items() if name != TOWARDS}
    found[TOWARDS] = image.tuned(towards_mode(image, level, settings.linear_steps))
    ends = {name: at_ends(each) for name, each in found.items()}
    (block,) = image.q.structure.blocks
    assert isinstance(block, DualBlock)
    rows = Correlated(image.q.prior, image.q.network.space, block.positions).ordered(block.dense_rows(block.packs))
    traces = [each.sum(1) for each in image.q.prior.class_diagonals(rows, image.q.network.space)]
    return {"blocks": {name: by_block(traces, each) for name, each in found.items()}, "at ends": ends}


def towards_mode(image: LinearisedImage, noise: float, steps: int) -> torch.Tensor:
    """Take some steps of Adam from θ̂ down a convex function of θ, on the way to its minimum, as the document does.

    It is the mean squared residual, with the penalty of the deep image prior on h(θ), and a small weight decay.
    """
    start, unit, operator = image.q.mean, own_unit(image.data), image.operator
    at = Linearisation(image.function.network, image.fitted.input[None, None])
    theta = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([theta], RATE)
    penalty = 2 * (noise / unit) ** 2 * image.fitted.penalty / operator.measurements
    for _ in range(steps):
        shown = (at.f + at.jvp((theta.detach() - start)[None])[0]).requires_grad_()
        misfit = ((operator(shown[0, 0]) - image.data) / unit).square().mean()
        (slope,) = torch.autograd.grad(misfit + penalty * total_variation(shown[0, 0]), shown)
        theta.grad = at.vjp(slope[None])[0] + DECAY * theta.detach()
        optimizer.step()
    return theta.detach()


def at_ends(q: Gaussian) -> int:
    """Return the number of precisions at a bound, which the data do not determine."""
    distance = q.prior.precision.log()[:, None] - torch.tensor(BOUNDS["precision"], dtype=torch.double)
    return int(distance.abs().min(1).values.lt(1e-6).sum())


def by_block(traces: Sequence[torch.Tensor], q: Gaussian) -> dict[str, dict[str, float]]:
    """Return the share of the prior variance of the data, and the hyperparameters, of each block."""
    prior, result = q.prior, {}
    assert isinstance(prior, Filters)
    weights = prior.class_weights()
    for number, (block, own, trace) in enumerate(zip(prior.blocks, weights, traces, strict=True)):
        values = {SHARE: float(own @ trace)}
        values[VARIANCE] = -float(prior.precision[number].log())
        if block.positions > 1:
            values[NEIGHBOURS] = math.exp(-1 / float(prior.lengthscale[number]))
        result[block.name] = values
    total = sum(values[SHARE] for values in result.values())
    for values in result.values():
        values[SHARE] /= total
    return result


def claims(images: Sequence[Blocks]) -> Iterator[Claim]:
    """Count the blocks that are switched off, and say what TV-PredCP changes."""
    for objective, name in (("exact", "the exact evidence"), (list(OBJECTIVES)[0], "the evidence around the weights")):
        each = [[values[SHARE] for values in image[objective].values()] for image in images]
        off = mean(sum(share < OFF for share in shares) for shares in each)
        yield Claim.over_seeds(
            f"Blocks that {name} switches off",
            f"{off:.1f} of {len(each[0])} blocks have less than {OFF:g} of the prior variance, on average over images.",
        )
    yield Claim.over_seeds(
        "Variances with TV-PredCP",
        "For filters of several entries the prior is a density of the length-scale given the variance, without its "
        "normaliser, as in the document. With it, the expected variation would count only above its value for tiny "
        "length-scales, and would hardly pull on these variances.",
    )
    yield Claim.over_seeds(
        "Length-scales with TV-PredCP",
        "Images of longer ones vary more: it is the change of variables in the prior's density, not the expected "
        "variation, that asks for them.",
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
