"""Time as ratios, with the unit measured next to the work; and live bytes by torch's own allocator log.

On a CPU it is the process's own; on an accelerator what passes until all work is done.
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from experiments.cost import peak_bytes as peak_of_one_call
from osculate.linalg import products

Work = Callable[[], object]

#: One measurement lasts at least this long, so that the work is repeated within it where it is shorter (seconds).
SHORTEST = 0.04

#: Where networks and data are.
device = torch.device("cpu")


def _symmetric_product(_: object, left: torch.Size, right: torch.Size, **__: object) -> int:
    return left.numel() * right[-1]


#: The product that ``add_gram`` makes where it divides no matrix: half of it counts.
SYMMETRIC = {torch.ops.aten.baddbmm_: _symmetric_product}


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        repeats: Interleaved repeats of unit and work.
        budget: CPU seconds after which a slow row stops repeating; one repeat is always made.
    """

    repeats: int = 9
    budget: float = 20.0


@dataclass(frozen=True)
class Spread:
    """A ratio over repeats."""

    median: float
    low: float
    high: float
    repeats: int
    unit_seconds: float | None = None

    @classmethod
    def of(cls, values: list[float], unit_seconds: float | None = None) -> "Spread":
        """Median and range."""
        return cls(statistics.median(values), min(values), max(values), len(values), unit_seconds)


def now() -> float:
    """Seconds of the process on a CPU; on an accelerator those of the clock, when its work is done."""
    if device.type == "cpu":
        return time.process_time()
    torch.accelerator.synchronize()
    return time.perf_counter()


def seconds(work: Work, times: int = 1) -> float:
    """Seconds of one call."""
    start = now()
    for _ in range(times):
        work()
    return (now() - start) / times


def ratio(unit: Work, work: Work, effort: Effort, scale: float = 1.0) -> Spread:
    """The cost of ``work`` in units, from interleaved repeats: unit, work, unit, work …

    Args:
        unit: What one unit is.
        work: What is measured.
        effort: How long.
        scale: Factor on each ratio, for work on fewer data than the unit.
    """
    seconds(unit)  # the first call pays for memory, threads and kernels
    unit_times = max(1, round(SHORTEST / seconds(unit)))
    first = seconds(work)
    if first > effort.budget:
        return Spread.of([scale * first / seconds(unit, unit_times)])
    times = max(1, round(SHORTEST / seconds(work)))
    ratios, units, spent = [], [], 0.0
    while len(ratios) < effort.repeats and (not ratios or spent < effort.budget):
        units.append(seconds(unit, unit_times))
        cost = seconds(work, times)
        spent += cost * times
        ratios.append(scale * cost / units[-1])
    return Spread.of(ratios, statistics.median(units))


def flops(unit: Work, work: Work) -> float:
    """The matrix products and convolutions of ``work``, in those of ``unit``: where its cost in units cannot go below.

    Products are counted as they are carried out, whatever their shapes do to their speed.
    """
    counts = []
    for each in (unit, work):
        counter = FlopCounterMode(display=False, custom_mapping=SYMMETRIC)
        with patch.object(products, "PANEL_ENTRIES", math.inf), counter:
            each()
        counts.append(counter.get_total_flops())
    return counts[1] / counts[0]


def peak_bytes(work: Work) -> int:
    """The most memory that tensors made by ``work`` took at once, from its second call on."""
    work()
    return peak_of_one_call(work)


def activation_bytes(model: nn.Module, x: Tensor) -> int:
    """The bytes of the outputs of every layer for these inputs."""
    sizes: list[int] = []
    leaves = [layer for layer in model.modules() if not any(True for _ in layer.children())]
    hooks = [
        layer.register_forward_hook(lambda _, __, output: sizes.append(output.numel() * output.itemsize))
        for layer in leaves
        if not isinstance(layer, nn.Flatten)
    ]
    model(x)
    for hook in hooks:
        hook.remove()
    return sum(sizes)
