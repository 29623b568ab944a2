"""Cost of a computation against its size: CPU seconds, peak memory, and the exponents of both."""

import ctypes
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
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
#: A function of name, size and seed that returns the computation to measure.
Maker = Callable[[str, int, int], Work]

#: Exponent that is assumed for a cost when only one size is known.
STEEP = 2.0


@dataclass(frozen=True)
class Limits:
    """Limits of a sweep, and number of repetitions.

    Args:
        seconds: Largest CPU time of one call.
        gigabytes: Largest peak memory of one call, in 1e9 bytes.
        repeats: Number of calls, of which the fastest counts; calls longer than a second are not repeated.
    """

    seconds: float
    gigabytes: float
    repeats: int = 5


@dataclass
class Curve:
    """The cost of one computation against its size.

    Attributes:
        sizes: Measured sizes, ascending, in the unit that exponents refer to.
        seconds: CPU seconds of one call at each size, one value per seed.
        peak_bytes: Peak memory at each size (of the first seed: it depends on shapes only).
        stopped: Reason why there are no larger sizes; empty if all were measured.
    """

    sizes: list[int] = field(default_factory=list)
    seconds: list[list[float]] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    stopped: str = ""

    def plain(self) -> dict[str, Any]:
        """Return the curve as JSON can hold it."""
        return asdict(self)

    def time_exponents(self, start: int = 0, last: int | None = None) -> tuple[float, ...]:
        """Fit the exponent of time, one value per seed, to sizes from ``start`` on or to the ``last`` few of them."""
        keep = self._kept(start, last)
        return tuple(
            exponent([self.sizes[n] for n in keep], [self.seconds[n][seed] for n in keep])
            for seed in range(len(self.seconds[0]) if len(keep) > 1 else 0)
        )

    def memory_exponent(self, start: int = 0, last: int | None = None) -> tuple[float, ...]:
        """Fit the exponent of memory; no value if fewer than two sizes were measured."""
        keep = self._kept(start, last)
        return (exponent([self.sizes[n] for n in keep], [self.peak_bytes[n] for n in keep]),) if len(keep) > 1 else ()

    def _kept(self, start: int, last: int | None) -> list[int]:
        found = [number for number, size in enumerate(self.sizes) if size >= start]
        return found if last is None else found[-last:]


def exponent(sizes: Sequence[float | int], costs: Sequence[float | int]) -> float:
    """Return the least-squares slope of log cost against log size.

    >>> round(exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    return statistics.linear_regression(x, y).slope


def sweep(
    make: Maker, names: Iterable[str], sizes: Mapping[str, int], seeds: Sequence[int], limits: Limits, progress: bool
) -> dict[str, Curve]:
    """Measure each computation at growing sizes, until the next one would go beyond a limit.

    Time is process CPU time on one thread, the least of a few calls, with an allocator that keeps freed memory. Whether
    a size is still within the limits is judged before it is tried, from the growth between the last two: a computation
    that is too large never starts.

    Args:
        make: Function of name, size and seed that returns the computation.
        names: Names of the computations.
        sizes: Ascending sizes by label, such as "64²".
        seeds: Seeds; time is measured for each, memory for the first.
        limits: Limits of the sweep.
        progress: Show a progress bar.
    """
    curves = {name: Curve() for name in names}
    keep_freed_memory()
    steps = [(name, *size) for name in curves for size in sizes.items()]
    with one_thread():
        for name, label, size in track(steps, "cost against size", len(steps), progress):
            curve = curves[name]
            if not curve.stopped and (reason := _beyond(curve, size, limits)):
                curve.stopped = f"{label} would take {reason}"
            if not curve.stopped:
                works = [make(name, size, seed) for seed in seeds]
                curve.seconds.append([cpu_seconds(work, limits.repeats) for work in works])
                curve.peak_bytes.append(peak_bytes(works[0]))
                curve.sizes.append(size)
    return curves


def _beyond(curve: Curve, size: int, limits: Limits) -> str:
    """Return the reason why a size would be too large, or nothing."""
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
    """Measure the process CPU seconds of one call: the least of several, or the first if it takes over a second."""
    found: list[float] = []
    while len(found) < repeats and (not found or found[0] < 1.0):
        start = time.process_time()
        work()
        found.append(max(time.process_time() - start, 1e-9))
    return min(found)


def peak_bytes(work: Work) -> int:
    """Measure the peak memory of tensors made by ``work``, temporaries inside operations included.

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
    """Use one thread in the context: CPU seconds are then those of the work, not of waiting threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def curvature_pass(
    model: nn.Module, likelihood: Likelihood, batch: tuple[Tensor, Tensor], structure: Structure, memory: str
) -> Work:
    """Return a function without arguments that computes the GGN of one batch in a structure.

    The plan is made beforehand, as it is once before the first of many batches.

    Args:
        model: The network.
        likelihood: The likelihood p(y|f).
        batch: Inputs and targets.
        structure: Structure of the matrix.
        memory: Limit of the temporaries, such as "256MB".
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
