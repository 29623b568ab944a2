"""Figure 7 of the Laplacian autoencoder: memory and time of Hessian approximations against the resolution."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from experiments import Claim, Findings, Number, Record, Runner, experiment, ignoring, seeded
from experiments.cost import Curve, Limits, Work, curvature_pass, sweep
from osculate.likelihoods import Gaussian
from osculate.structures import ApproxDiag, Diag, Kron, Structure


@dataclass(frozen=True)
class Settings:
    """Network and sizes.

    Args:
        sides: Side lengths of the images in pixels.
        batch: Images in the batch.
        layers: Convolutions of three channels, kernel 3, without biases, with a tanh between them.
        limits: Limits of a curve.
        start: Smallest side length that the exponents of the approximate diagonal are fitted to.
        last: Number of largest sizes that the other exponents are fitted to.
    """

    sides: tuple[int, ...] = (8, 16, 24, 32, 64, 96, 128, 192, 256)
    batch: int = 8
    layers: int = 5
    limits: Limits = Limits(seconds=15.0, gigabytes=4.0)
    start: int = 64
    last: int = 3


APPROX, EXACT, KFAC, PEER = "approx_diag", "diag", "kron", "BackPACK diag"
STRUCTURES: dict[str, Structure] = {APPROX: ApproxDiag(), EXACT: Diag(), KFAC: Kron()}
#: Limit of the temporaries of a pass: the default where enough memory is free.
MEMORY = "256MiB"
TIME_POWER, MEMORY_POWER, LARGEST = "time, power of the pixels", "memory, power of the pixels", "largest side"
SECONDS, PEAK = "CPU seconds there", "peak MB there"


def network(layers: int) -> nn.Sequential:
    """Convolutions that keep the size of the image."""
    parts = [part for _ in range(layers) for part in (nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.Tanh())]
    return nn.Sequential(*parts[:-1])


@experiment(
    "lae-figure7",
    "Memory and time of Hessian approximations against the image resolution",
    "Laplacian Autoencoders [miani2022], Figure 7",
    peers=("backpack-for-pytorch",),
    # the figure's batch size is not printed; its GPU had 11 GB
    paper=Settings(
        sides=(8, 12, 16, 20, 24, 28, 32, 36, 48, 64, 96, 128, 192, 256), limits=Limits(seconds=300.0, gigabytes=11.0)
    ),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Time and memory of each approximation at each size, and BackPACK's where it is installed."""
    sides = {side**2: side for side in settings.sides}
    names = [*STRUCTURES, *([PEER] if find_spec("backpack") else [])]

    def make(name: str, pixels: int, seed: int) -> Work:
        side = sides[pixels]
        with seeded(seed):
            model, x = network(settings.layers), torch.randn(settings.batch, 3, side, side)
        return work(name, model, x)

    labels = {f"{side}²": pixels for pixels, side in sides.items()}
    return conclude(sweep(make, names, labels, seeds, settings.limits, runner.progress), settings)


def work(name: str, model: nn.Sequential, x: torch.Tensor) -> Work:
    """Return the computation of one matrix, by osculate or by its peer."""
    if name == PEER:
        return _backpack(model, x)
    return curvature_pass(model, Gaussian(1.0), (x, x), STRUCTURES[name], MEMORY)


def _backpack(model: nn.Sequential, x: torch.Tensor) -> Work:
    """BackPACK's exact diagonal of the GGN; its squared error has twice the curvature of our unit Gaussian."""
    backpack, extensions = (importlib.import_module(name) for name in ("backpack", "backpack.extensions"))
    extended = backpack.extend(nn.Sequential(*model, nn.Flatten()))
    loss = backpack.extend(nn.MSELoss(reduction="sum"))

    def work() -> list[torch.Tensor]:
        extended.zero_grad()
        with ignoring("Full backward hook is firing"), backpack.backpack(extensions.DiagGGNExact()):
            loss(extended(x), x.flatten(1)).backward()
        return [p.diag_ggn_exact / 2 for p in extended.parameters()]

    return work


def conclude(curves: Mapping[str, Curve], settings: Settings) -> Findings:
    """Exponents, costs at the largest sizes, and what they say about the document's claims."""
    numbers = []
    for name, curve in curves.items():
        linear = name == APPROX
        part = {"start": settings.start**2} if linear else {"last": settings.last}
        sides = tuple(float(round(pixels**0.5)) for pixels in curve.sizes[-1:])
        # the document prints no slopes; its words are "linear" for one and "poorly" for the others
        words = "linear" if linear else ""
        numbers += [
            Number(name, TIME_POWER, curve.time_exponents(**part), words),
            Number(name, MEMORY_POWER, curve.memory_exponent(**part), words),
            Number(name, LARGEST, sides, "" if linear or name == KFAC else "about 36"),
            Number(name, SECONDS, tuple(curve.seconds[-1]) if sides else ()),
            Number(name, PEAK, tuple(size / 1e6 for size in curve.peak_bytes[-1:])),
        ]
    found = {(number.row, number.column): number.mean for number in numbers}
    data = {
        "curves": {name: curve.plain() for name, curve in curves.items()},
        "absent": [] if PEER in curves else [f"{PEER}: backpack-for-pytorch is not installed"],
        "mixed_diag": "not drawn: this network has no bottleneck; lae-table1 measures it on one that has",
    }
    return Findings(tuple(numbers), claims(found, curves, settings.batch), data)


def claims(found: Mapping[tuple[str, str], float | None], curves: Mapping[str, Curve], batch: int) -> Iterator[Claim]:
    """Yield the claims whose numbers need words, from the means by row and column and the curves."""
    stop = {
        name: (curves[name].stopped or "nowhere within these sizes") if name in curves else "it is not installed"
        for name in (EXACT, PEER)
    }
    yield Claim.over_seeds(
        "Memory of the approximate diagonal",
        f"Batches are worked through in parts where they would take more than {MEMORY}.",
    )
    yield Claim.over_seeds(
        "Memory with all columns at once, as in the programs of the time", f"BackPACK's stops: {stop[PEER]}."
    )
    yield Claim.over_seeds(
        "Memory of exact diagonal and KFAC",
        f"Columns are pulled back a few at a time, within {MEMORY}. Time stops them: {stop[EXACT]}.",
    )
    side, seconds, peak = (found.get((APPROX, column)) for column in (LARGEST, SECONDS, PEAK))
    if side is not None and seconds is not None and peak is not None:
        yield Claim.over_seeds(
            "Large images", f"{batch} images of {side:.0f}² pixels took {seconds:.2f} CPU seconds and {peak:.0f} MB."
        )


@measure.figure
def draw(record: Record) -> Any:
    """Time and memory against the side of the image."""
    from experiments.lae import figures

    curves, settings = record.findings.data["curves"], record.setup.settings
    heading = f"Cost of one curvature matrix: {settings['layers']} convolutions, {settings['batch']} images"
    return figures.costs({kind: (kind, curves) for kind in ("time", "memory")}, heading)
