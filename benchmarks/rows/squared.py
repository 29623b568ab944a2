"""Approximate and mixed diagonals of convolutional autoencoders, in units of one training step on the same batch.

The networks are those of a resolution sweep: five 3-channel convolutions, which keep the resolution, and an
autoencoder with strides and upsampling. Time is also fitted as a power of the number of pixels.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial

import torch
from torch import Tensor, nn

import osculate as osc
from benchmarks.result import Result, row
from benchmarks.timing import Effort, Spread, flops, peak_bytes, ratio

UNIT = "forward + backward, same batch"
BATCH, CHANNELS = 8, 3
SIDES = (64, 128, 256)
BOUND, MEMORY_BOUND, MIXED_BOUND = 1.6, 2.0, 10.0
#: The exponent of time in the number of pixels, and how far it may be from one.
SLOPE, TOLERANCE = 1.0, 0.15


def plain() -> nn.Module:
    """Five convolutions of three channels, without biases."""
    layers: list[nn.Module] = []
    for _ in range(5):
        layers += [nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def strided(upsampling: str) -> nn.Module:
    """Two strided convolutions, and two that follow an upsampling."""
    return nn.Sequential(
        nn.Conv2d(CHANNELS, 16, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.ReLU(),
        nn.Upsample(scale_factor=2, mode=upsampling),
        nn.Conv2d(32, 16, 3, padding=1),
        nn.ReLU(),
        nn.Upsample(scale_factor=2, mode=upsampling),
        nn.Conv2d(16, CHANNELS, 3, padding=1),
    )


def transposed() -> nn.Module:
    """Strided convolutions down, transposed ones up."""
    return nn.Sequential(
        nn.Conv2d(CHANNELS, 16, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(16, CHANNELS, 4, 2, 1),
    )


def bottleneck(side: int) -> nn.Module:
    """Eight units in the middle."""
    inner = 32 * (side // 4) ** 2
    return nn.Sequential(
        nn.Conv2d(CHANNELS, 16, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(inner, 8),
        nn.Linear(8, inner),
        nn.Unflatten(1, (32, side // 4, side // 4)),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(32, 16, 3, padding=1),
        nn.ReLU(),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(16, CHANNELS, 3, padding=1),
    )


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "plain": plain,
    "nearest": partial(strided, "nearest"),
    "bilinear": partial(strided, "bilinear"),
    "transposed": transposed,
}


@lru_cache
def works(network: str, side: int, structure: str = "approx_diag") -> tuple[Callable[[], None], Callable[[], None]]:
    """A training step, and a fit of one batch."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = bottleneck(side) if network == "bottleneck" else NETWORKS[network]()
        x = torch.randn(BATCH, CHANNELS, side, side)

    def step() -> None:
        model.zero_grad()
        (model(x) - x).square().sum().backward()

    curvature = fitter(model, x, structure)
    return step, curvature


def fitter(model: nn.Module, x: Tensor, structure: str) -> Callable[[], None]:
    """Adds one more batch to a curvature whose plan is made."""
    network = osc.parameters.Network(model, osc.parameters.trainable(model))
    plan = osc.curvature.plan.make_plan(network, x[:2])
    rule = osc.structures.REGISTRY[structure]()
    state = rule.zero(plan.blocks, network.space, network.dtype, network.device)
    kind, memory = osc.curvature.GGN(), osc.memory.budget(None, network.device)
    likelihood = osc.likelihoods.Gaussian(1.0)
    seen = osc.curvature.engine.Observation(network, plan, likelihood, kind, (x, x), memory)
    return lambda: (rule.add(state, seen), None)[1]


def _time(network: str, side: int) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        step, fit = works(network, side)
        name = f"fit approx_diag ggn {network} {side}²"
        return Result(name, UNIT, ratio(step, fit, effort), BOUND, limit=flops(step, fit))

    return measure


def _memory(network: str, side: int) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        step, fit = works(network, side)
        unit, peak = peak_bytes(step), peak_bytes(fit)
        note = f"{peak / 1e6:.1f} MB, training step {unit / 1e6:.1f} MB"
        name = f"memory approx_diag {network} {side}²"
        return Result(name, "memory of a training step", Spread.of([peak / unit]), MEMORY_BOUND, note=note)

    return measure


def _slope(network: str) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        works_at = [works(network, side)[1] for side in SIDES]
        times = [ratio(works_at[0], work, effort) for work in works_at]
        slopes = [math.log(value) / math.log((SIDES[-1] / SIDES[0]) ** 2) for value in _values(times[-1])]
        name = f"exponent approx_diag {network}"
        spread = Spread.of(slopes)
        note = ", ".join(f"{side}²: {spread.median:.1f}" for side, spread in zip(SIDES, times, strict=True))
        holds = abs(spread.median - SLOPE) <= TOLERANCE
        return Result(name, "power of the number of pixels", spread, SLOPE + TOLERANCE, note=note, holds=holds)

    return measure


def _values(spread: Spread) -> list[float]:
    return [spread.low, spread.median, spread.high]


def _mixed(side: int) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        step, fit = works("bottleneck", side, "mixed_diag")
        name = f"fit mixed_diag ggn bottleneck of 8, {side}²"
        return Result(name, UNIT, ratio(step, fit, effort), MIXED_BOUND, limit=flops(step, fit))

    return measure


for _network in NETWORKS:
    for _side in SIDES:
        row(f"fit-approx_diag-ggn-{_network}-{_side}")(_time(_network, _side))
for _side in SIDES:
    row(f"fit-mixed_diag-ggn-bottleneck-{_side}")(_mixed(_side))
for _network in NETWORKS:
    row(f"memory-approx_diag-{_network}-{SIDES[1]}")(_memory(_network, SIDES[1]))
for _network in ("plain", "nearest", "bilinear"):
    row(f"exponent-approx_diag-{_network}")(_slope(_network))
