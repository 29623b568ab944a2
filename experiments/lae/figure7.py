"""Figure 7 of the Laplacian autoencoder: memory and time of Hessian approximations against the resolution."""

import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from experiments import Claim, Findings, Number, Record, experiment, seeded
from experiments.cost import Curve, Limits, Work, curvature_pass, sweep
from osculate.likelihoods import Gaussian
from osculate.structures import ApproxDiag, Diag, Kron, Structure


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Args:
        sides: side lengths of the images, in pixels.
        batch: images in the batch.
        layers: convolutions of three channels, kernel 3, without biases, a tanh between them.
        limits: where a curve stops.
        start: side length from which the exponents of the approximate diagonal are fitted.
        last: those of the others are slopes over so many of their largest sizes.
    """

    sides: tuple[int, ...] = (8, 16, 24, 32, 64, 96, 128, 192, 256)
    batch: int = 8
    layers: int = 5
    limits: Limits = Limits(seconds=15.0, gigabytes=4.0)
    start: int = 64
    last: int = 3


PRESETS = {
    "small": Settings(),
    # the figure's batch size is not printed; its GPU had 11 GB
    "paper": Settings(
        sides=(8, 12, 16, 20, 24, 28, 32, 36, 48, 64, 96, 128, 192, 256), limits=Limits(seconds=300.0, gigabytes=11.0)
    ),
}

APPROX, EXACT, KFAC, PEER = "approx_diag", "diag", "kron", "BackPACK diag"
STRUCTURES: dict[str, Structure] = {APPROX: ApproxDiag(), EXACT: Diag(), KFAC: Kron()}
#: An exponent counts as linear within the first of one, and as more than linear from the second on.
TOLERANCE, STEEP = 0.15, 1.5
#: What the temporaries of a pass may take: the default where enough memory is free.
MEMORY = "256MiB"
TIME_POWER, MEMORY_POWER, LARGEST = "time, power of the pixels", "memory, power of the pixels", "largest side"


def network(layers: int) -> nn.Sequential:
    """Convolutions that keep the size of the image."""
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.Tanh()]
    return nn.Sequential(*parts[:-1])


@experiment(
    "lae-figure7",
    "Memory and time of Hessian approximations against the image resolution",
    "Laplacian Autoencoders [miani2022], Figure 7",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Time and memory of each approximation at each size, and BackPACK's where it is installed."""
    sides = {side**2: side for side in settings.sides}
    passes: dict[str, Callable[..., Work]] = {name: partial(_ours, rule) for name, rule in STRUCTURES.items()}
    if find_spec("backpack") is not None:
        passes[PEER] = _backpack

    def make(run: Callable[..., Work], pixels: int, seed: int) -> Work:
        side = sides[pixels]
        with seeded(seed):
            model, x = network(settings.layers), torch.randn(settings.batch, 3, side, side)
        return run(model, x)

    labels = {f"{side}²": pixels for pixels, side in sides.items()}
    makers = {name: partial(make, run) for name, run in passes.items()}
    return conclude(sweep(makers, labels, seeds, settings.limits, progress), settings)


def _ours(structure: Structure, model: nn.Sequential, x: torch.Tensor) -> Work:
    return curvature_pass(model, Gaussian(1.0), (x, x), structure, MEMORY)


def _backpack(model: nn.Sequential, x: torch.Tensor) -> Work:
    """BackPACK's exact diagonal of the GGN; its squared error has twice the curvature of our unit Gaussian."""
    backpack, extensions = (importlib.import_module(name) for name in ("backpack", "backpack.extensions"))
    extended = backpack.extend(nn.Sequential(*model, nn.Flatten()))
    loss = backpack.extend(nn.MSELoss(reduction="sum"))

    def work() -> list[torch.Tensor]:
        extended.zero_grad()
        with warnings.catch_warnings(), backpack.backpack(extensions.DiagGGNExact()):
            warnings.filterwarnings("ignore", "Full backward hook is firing")
            loss(extended(x), x.flatten(1)).backward()
        return [p.diag_ggn_exact / 2 for p in extended.parameters()]

    return work


def conclude(curves: Mapping[str, Curve], settings: Settings) -> Findings:
    """Exponents, costs at the largest sizes, and what they say about the document's claims."""
    numbers = [number for name, curve in curves.items() for number in _row(name, curve, settings)]
    found = {(number.row, number.column): number.mean for number in numbers}
    data = {
        "curves": {name: curve.plain() for name, curve in curves.items()},
        "absent": [] if PEER in curves else [f"{PEER}: backpack-for-pytorch is not installed"],
        "mixed_diag": "not drawn: this network has no bottleneck; lae-table1 measures it on one that has",
    }
    return Findings(tuple(numbers), claims(found, curves, settings), data)


def _row(name: str, curve: Curve, settings: Settings) -> list[Number]:
    linear = name == APPROX
    part = {"start": settings.start**2} if linear else {"last": settings.last}
    sides = [round(pixels**0.5) for pixels in curve.sizes]
    # the document prints no slopes; its words are "linear" for one and "poorly" for the others
    return [
        Number(name, TIME_POWER, curve.time_exponents(**part), "linear" if linear else ""),
        Number(name, MEMORY_POWER, curve.memory_exponent(**part), "linear" if linear else ""),
        Number(name, LARGEST, tuple(float(side) for side in sides[-1:]), "" if linear or name == KFAC else "about 36"),
        Number(name, "CPU seconds there", tuple(curve.seconds[-1]) if sides else ()),
        Number(name, "peak MB there", tuple(size / 1e6 for size in curve.peak_bytes[-1:])),
    ]


def claims(
    found: Mapping[tuple[str, str], float | None], curves: Mapping[str, Curve], settings: Settings
) -> tuple[Claim, ...]:
    """Verdicts from the numbers by row and column.

    Args:
        found: means of the numbers.
        curves: for the words on where they stopped.
        settings: for the words on what was measured.
    """
    powers = {name: found.get((name, TIME_POWER)) for name in (APPROX, EXACT, KFAC, PEER)}
    memories = {name: found.get((name, MEMORY_POWER)) for name in (APPROX, EXACT, KFAC, PEER)}
    time, memory = powers[APPROX], memories[APPROX]
    top = max(settings.sides)
    reached = found.get((APPROX, LARGEST)) == top
    return (
        Claim.judged(
            "The approximate diagonal scales linearly with the image resolution, in time",
            None if time is None else abs(time - 1) <= TOLERANCE,
            f"time ~ pixels^{_word(time)} from {settings.start}² on; 1 ± {TOLERANCE} counts as linear.",
        ),
        Claim.judged(
            "… and in memory",
            None if memory is None else memory <= 1 + TOLERANCE,
            f"memory ~ pixels^{_word(memory)} from {settings.start}² on; at most {1 + TOLERANCE} counts. "
            f"Batches are worked through in parts where they would take more than {MEMORY}.",
        ),
        Claim.judged(
            "The exact diagonal and KFAC scale poorly with the image resolution, in time",
            _steep([powers[EXACT], powers[KFAC]]),
            f"time ~ pixels^{_word(powers[EXACT])} (exact), pixels^{_word(powers[KFAC])} (KFAC), "
            f"pixels^{_word(powers[PEER])} (BackPACK's exact); from {STEEP} on counts as poor.",
        ),
        Claim.judged(
            "… and in memory: columns all at once, as in the programs of the time",
            _steep([memories[PEER]]),
            f"memory of BackPACK's exact diagonal ~ pixels^{_word(memories[PEER])}. It stops: {_stop(curves, PEER)}.",
        ),
        Claim.judged(
            "… and in memory, whatever the program",
            _steep([memories[EXACT], memories[KFAC]]),
            f"memory ~ pixels^{_word(memories[EXACT])} (exact), pixels^{_word(memories[KFAC])} (KFAC): here columns "
            f"are pulled back a few at a time, within {MEMORY}. Time stops them: {_stop(curves, EXACT)}.",
        ),
        Claim.judged(
            "The approximate diagonal is viable for large images",
            reached if found.get((APPROX, LARGEST)) is not None and top >= 256 else None,
            f"{settings.batch} images of {found.get((APPROX, LARGEST)) or 0:.0f}² pixels took "
            f"{_word(found.get((APPROX, 'CPU seconds there')))} CPU seconds and "
            f"{_word(found.get((APPROX, 'peak MB there')), 0)} MB.",
        ),
    )


def _steep(powers: Sequence[float | None]) -> bool | None:
    known = [power for power in powers if power is not None]
    return None if len(known) < len(powers) else min(known) >= STEEP


def _word(value: float | None, digits: int = 2) -> str:
    return "? (not measured)" if value is None else f"{value:.{digits}f}"


def _stop(curves: Mapping[str, Curve], name: str) -> str:
    return (curves[name].stopped or "nowhere within these sizes") if name in curves else "it is not installed"


measure.peers = ("backpack-for-pytorch",)


@measure.figure
def draw(record: Record) -> Any:
    """Time and memory against the side of the image."""
    from experiments.lae import figures

    curves = record.findings.data["curves"]
    panels = {
        "time": {n: (c["sizes"], [sum(s) / len(s) for s in c["seconds"]], c["stopped"]) for n, c in curves.items()},
        "memory": {n: (c["sizes"], [b / 1e6 for b in c["peak_bytes"]], c["stopped"]) for n, c in curves.items()},
    }
    axes = {"time": ("pixels of an image", "CPU seconds"), "memory": ("pixels of an image", "peak memory, MB")}
    settings = record.setup.settings
    return figures.scaling(
        panels,
        axes,
        f"What one curvature matrix costs: {settings['layers']} convolutions, {settings['batch']} images",
    )
