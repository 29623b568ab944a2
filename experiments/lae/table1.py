"""Table 1 of the Laplacian autoencoder: complexity of approximations of the Hessian, as measured exponents."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

import osculate as osc
from experiments import Claim, Findings, Number, Record, Runner, experiment, seeded
from experiments.cost import Limits, Work, curvature_pass, sweep


@dataclass(frozen=True)
class Settings:
    """Sizes at which costs are measured.

    Args:
        sides: Side lengths of the images in pixels, with the same parameters.
        channels: Channels of the convolutions.
        widths: Widths of the hidden layers, with the same inputs and outputs.
        batch: Number of data in the batch.
        limits: Limits of a curve.
        last: Number of largest sizes that an exponent is fitted to; at small ones other costs prevail.
    """

    sides: tuple[int, ...] = (16, 24, 32, 48, 64, 128, 256, 512)
    channels: int = 4
    widths: tuple[int, ...] = (16, 32, 48, 64, 512, 1024, 2048)
    batch: int = 1
    limits: Limits = Limits(seconds=10.0, gigabytes=0.5)
    last: int = 3


RESOLUTION, PARAMETERS = "resolution", "parameters"
COLUMNS = {
    (RESOLUTION, "time"): "time, power of the resolution R",
    (RESOLUTION, "memory"): "memory, power of R",
    (PARAMETERS, "time"): "time, power of the parameters W",
    (PARAMETERS, "memory"): "memory, power of W",
}


@dataclass(frozen=True)
class Row:
    """One approximation of the table.

    Attributes:
        structure: The structure of osculate.
        memory: Printed order of memory.
        time: Printed order of time.
        powers: Powers in them: time and memory by R, time and memory by W.
    """

    structure: osc.structures.Structure
    memory: str
    time: str
    powers: tuple[int, int, int, int]


#: The table as printed. R_m is the largest activation, R_s and W_s sum over layers, and squares are within the sums.
ROWS = {
    "block": Row(osc.structures.BlockDiagonal(limit=100_000), "O(R_m² + W_s²)", "O(R_s² + W_s²)", (2, 2, 2, 2)),
    "kron": Row(osc.structures.Kron(), "O(R_s² + W_s)", "O(R_s² + W_s)", (2, 2, 1, 1)),
    "diag": Row(osc.structures.Diag(), "O(R_m² + W_s)", "O(R_s² + W_s)", (2, 2, 1, 1)),
    "approx_diag": Row(osc.structures.ApproxDiag(), "O(R_m + W_s)", "O(R_s + W_s)", (1, 1, 1, 1)),
    "mixed_diag": Row(osc.structures.MixedDiag(bottleneck="encoder"), "O(R_m + W_s)", "O(R_s + W_s)", (1, 1, 1, 1)),
}

#: Limit of the temporaries of a pass.
MEMORY = "256MB"


def convolutional(side: int, channels: int) -> nn.Module:
    """An autoencoder whose parameters do not depend on the resolution; its bottleneck has 8 units."""

    def convolution(inputs: int, outputs: int) -> nn.Module:
        return nn.Conv2d(inputs, outputs, 3, padding=1)

    body = [convolution(3, channels), nn.Tanh(), convolution(channels, channels), nn.Tanh()]
    encoder = nn.Sequential(*body, nn.AdaptiveAvgPool2d(2), nn.Conv2d(channels, 2, 1))
    decoder = nn.Sequential(nn.Upsample(size=side), convolution(2, channels), nn.Tanh(), convolution(channels, 3))
    return nn.Sequential(OrderedDict(encoder=encoder, decoder=decoder))


def fully_connected(width: int) -> nn.Module:
    """An autoencoder of 16 numbers through 2, with two hidden layers on each side."""
    encoder, decoder = (osc.networks.MLP(*ends) for ends in ((16, (width, width), 2), (2, (width, width), 16)))
    return nn.Sequential(OrderedDict(encoder=encoder, decoder=decoder))


@experiment(
    "lae-table1",
    "Memory and time of Hessian approximations: measured exponents beside the stated orders",
    "Laplacian Autoencoders [miani2022], Table 1",
    # the table is about orders, and has no setting of its own: more of the same, up to the memory of its GPU
    paper=Settings(
        sides=(16, 24, 32, 48, 64, 96, 128, 256, 512, 1024),
        widths=(16, 32, 48, 64, 96, 128, 512, 1024, 2048, 4096),
        batch=8,
        limits=Limits(seconds=300.0, gigabytes=11.0),
    ),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Sweep over resolutions and widths, and fit the exponents."""
    sides = {side**2: side for side in settings.sides}
    with torch.device("meta"):  # shapes only
        widths = {sum(p.numel() for p in fully_connected(width).parameters()): width for width in settings.widths}

    def work(axis: str, name: str, size: int, seed: int) -> Work:
        with seeded(seed):
            if axis == RESOLUTION:
                model = convolutional(sides[size], settings.channels)
                x = torch.randn(settings.batch, 3, sides[size], sides[size])
            else:
                model, x = fully_connected(widths[size]), torch.randn(settings.batch, 16)
        return curvature_pass(model, osc.likelihoods.Gaussian(1.0), (x, x), ROWS[name].structure, MEMORY)

    sizes = {
        RESOLUTION: {f"{side}²": n for n, side in sides.items()},
        PARAMETERS: {f"width {width}": n for n, width in widths.items()},
    }
    curves = {
        axis: sweep(partial(work, axis), ROWS, sizes[axis], seeds, settings.limits, runner.progress) for axis in sizes
    }
    numbers = {}
    for name, row in ROWS.items():
        for ((axis, kind), column), power in zip(COLUMNS.items(), row.powers, strict=True):
            curve, last = curves[axis][name], settings.last
            exponents = curve.time_exponents(last=last) if kind == "time" else curve.memory_exponent(last=last)
            numbers[axis, kind, name] = Number(name, column, exponents, str(power))
    orders = {name: {"memory": row.memory, "time": row.time} for name, row in ROWS.items()}
    plain = {axis: {name: curve.plain() for name, curve in part.items()} for axis, part in curves.items()}
    return Findings(tuple(numbers.values()), claims(), {"curves": plain, "printed": orders})


def claims() -> Iterator[Claim]:
    """Yield the claims whose numbers need words."""
    yield Claim.over_seeds(
        "Mixed diagonal",
        "Ours is not the document's: its encoder is exact, from one column for each unit of the bottleneck.",
    )
    yield Claim.over_seeds(
        "Memory of blocks, KFAC and exact diagonal",
        "Columns are pulled back a few at a time, within a stated amount of memory; the square is the cost of doing "
        "all of them at once.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Draw cost against size, one panel per column of the table."""
    from experiments.lae import figures

    curves = record.findings.data["curves"]
    panels = {f"{kind} against {axis}": (kind, curves[axis]) for axis, kind in COLUMNS}
    return figures.costs(panels, "Cost of one curvature matrix against the size of images and networks")
