"""What a computation costs as its size grows: CPU seconds, peak memory, and the exponents of both."""

import ctypes
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from osculate.curvature.columns import GGN
from osculate.curvature.engine import Observation
from osculate.curvature.plan import make_plan
from osculate.likelihoods import Likelihood
from osculate.memory import budget, readable
from osculate.parameters import Network, trainable
from osculate.progress import track
from osculate.structures import Structure

Work = Callable[[], object]
#: Size and seed to the computation that is measured.
Maker = Callable[[int, int], Work]

#: The power of the size by which a cost is assumed to grow where only one point is known.
STEEP = 2.0


@dataclass(frozen=True)
class Limits:
    """Where a sweep stops, and how carefully it measures.

    Args:
        seconds: CPU seconds of one call.
        gigabytes: peak memory of one call, in 1e9 bytes.
        repeats: calls of which the fastest counts; calls longer than a second are not repeated.
    """

    seconds: float
    gigabytes: float
    repeats: int = 5


@dataclass
class Curve:
    """The cost of one computation against its size.

    Attributes:
        sizes: the sizes measured, ascending, in the unit that exponents refer to.
        seconds: CPU seconds of one call at each size, one value a seed.
        peak_bytes: peak memory at each size (the first seed's: it depends on shapes only).
        stopped: why there are no larger sizes; empty where all were measured.
    """

    sizes: list[int] = field(default_factory=list)
    seconds: list[list[float]] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    stopped: str = ""

    def plain(self) -> dict[str, Any]:
        """The curve as JSON holds it."""
        return asdict(self)

    def time_exponents(self, start: int = 0, last: int | None = None) -> tuple[float, ...]:
        """The power of the size by which time grows, one value a seed; from this size on, over the last few of them."""
        keep = self._kept(start, last)
        return tuple(
            exponent([self.sizes[n] for n in keep], [self.seconds[n][seed] for n in keep])
            for seed in range(len(self.seconds[0]) if len(keep) > 1 else 0)
        )

    def memory_exponent(self, start: int = 0, last: int | None = None) -> tuple[float, ...]:
        """The power of the size by which memory grows; no value where fewer than two sizes were measured."""
        keep = self._kept(start, last)
        return (exponent([self.sizes[n] for n in keep], [self.peak_bytes[n] for n in keep]),) if len(keep) > 1 else ()

    def _kept(self, start: int, last: int | None) -> list[int]:
        found = [number for number, size in enumerate(self.sizes) if size >= start]
        return found if last is None else found[-last:]


def exponent(sizes: Sequence[float | int], costs: Sequence[float | int]) -> float:
    """The least-squares slope of log cost against log size.

    >>> round(exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    return statistics.linear_regression(x, y).slope


def sweep(
    makers: Mapping[str, Maker], sizes: Mapping[str, int], seeds: Sequence[int], limits: Limits, progress: bool
) -> dict[str, Curve]:
    """Measure each computation at growing sizes, until the next one would go beyond a limit.

    Time is process CPU time on one thread, the least of a few calls, with an allocator that keeps freed memory. Whether
    a size is still within the limits is judged before it is tried, from the growth between the last two: a computation
    that is too large never starts.

    Args:
        makers: by name, size and seed to a computation.
        sizes: ascending, by what they are called ("64²").
        seeds: time is measured for each, memory for the first.
        limits: where to stop.
        progress: show a progress bar.
    """
    curves = {name: Curve() for name in makers}
    keep_freed_memory()
    steps = [(name, *size) for name in makers for size in sizes.items()]
    with one_thread():
        for name, label, size in track(steps, "cost against size", len(steps), progress):
            curve = curves[name]
            if not curve.stopped and (reason := _beyond(curve, size, limits)):
                curve.stopped = f"{label} would take {reason}"
            if not curve.stopped:
                works = [makers[name](size, seed) for seed in seeds]
                curve.seconds.append([cpu_seconds(work, limits.repeats) for work in works])
                curve.peak_bytes.append(peak_bytes(works[0]))
                curve.sizes.append(size)
    return curves


def _beyond(curve: Curve, size: int, limits: Limits) -> str:
    """Why a size would be too large; empty where it is not."""
    if not curve.sizes:
        return ""
    seconds = _predicted(curve.sizes, [min(values) for values in curve.seconds], size)
    memory = _predicted(curve.sizes, curve.peak_bytes, size)
    reasons = []
    if seconds > limits.seconds:
        reasons.append(f"about {seconds:{',.0f' if seconds >= 10 else '.1g'}} s (limit {limits.seconds:g} s)")
    if memory > 1e9 * limits.gigabytes:
        reasons.append(f"about {readable(memory)} (limit {limits.gigabytes:g} GB)")
    return " and ".join(reasons)


def _predicted(sizes: Sequence[int], costs: Sequence[float | int], size: int) -> float:
    slope = max(0.0, exponent(sizes[-2:], costs[-2:])) if len(sizes) > 1 else STEEP
    return costs[-1] * (size / sizes[-1]) ** slope


def cpu_seconds(work: Work, repeats: int) -> float:
    """Process CPU seconds of one call: the least of several, or that of the first where it takes over a second."""
    found: list[float] = []
    while len(found) < repeats and (not found or found[0] < 1.0):
        start = time.process_time()
        work()
        found.append(max(time.process_time() - start, 1e-9))
    return min(found)


def peak_bytes(work: Work) -> int:
    """The most memory that tensors made by ``work`` took at once, temporaries inside operations included.

    Every allocation and release of torch's CPU allocator is logged by its profiler and summed in order. What a first
    call allocates for good is not among it: call ``work`` once before.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it announces itself on stderr otherwise
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def keep_freed_memory() -> bool:
    """Tell glibc's allocator to keep what is freed, for this process; False where it is another allocator.

    Otherwise large tensors go back to the kernel when they are freed, and every batch pays for fresh pages: up to
    1.5 µs each in a virtual machine, ten times the cost on bare metal, and more than the work itself.

    A curve over sizes would show where tensors become large for the allocator, not how the work grows.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    trim_threshold, mmap_threshold, largest = -1, -3, 2**30
    return bool(mallopt(mmap_threshold, largest) and mallopt(trim_threshold, 2**31 - 1))


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread while the context lasts: CPU seconds are then those of the work, not of waiting threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


def curvature_pass(
    model: nn.Module, likelihood: Likelihood, batch: tuple[Tensor, Tensor], structure: Structure, memory: str
) -> Work:
    """The GGN of one batch in a structure, as a function of nothing.

    The network is looked at beforehand, as it would be once before the first of many batches.

    Args:
        model: the network.
        likelihood: p(y|f).
        batch: inputs and targets.
        structure: what is kept of the matrix.
        memory: what the temporaries may take, as "256MB".
    """
    network = Network(model, trainable(model))
    plan = make_plan(network, batch[0])
    allowed = budget(memory, network.device)
    seen = Observation(network, plan, likelihood, GGN(), batch, allowed)

    def work() -> object:
        state = structure.zero(plan.blocks, network.space, network.state_dtype, network.device)
        structure.add(state, seen)
        state.finish()
        return state

    return work
