"""KFAC fits under settings of the number of threads, in units of the same fit with ``OMP_NUM_THREADS=1``.

Each fit has a process of its own, since OpenMP reads its environment once. With one thread CPU seconds are compared;
with more, where CPU seconds count waiting, wall-clock seconds: these need an idle machine.
"""

import os
import subprocess
import sys
from collections.abc import Callable

from benchmarks.result import Result, row
from benchmarks.timing import Effort, Spread

BOUND = 1.3
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

FIT = """
import sys, time
import torch
if sys.argv[2] == "torch":
    torch.set_num_threads(int(sys.argv[3]))
import osculate as osc
from benchmarks.networks import setting

data = setting(sys.argv[1])
for _ in range(4):
    cpu, wall = time.process_time(), time.perf_counter()
    osc.laplace(data.model, osc.likelihoods.Categorical(), data.batches, structure="kron", prior=1.0)
    print(time.process_time() - cpu, time.perf_counter() - wall)
"""

#: The place of the setting, the number of threads there, and the bound.
SETTINGS = (("torch", 1, BOUND), ("neither", None, BOUND), ("torch", 2, None), ("environment", 2, None))


def seconds(network: str, place: str, threads: int | None) -> tuple[float, float]:
    """CPU and wall-clock seconds of the fastest fit after the first."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    if place == "environment":
        environment["OMP_NUM_THREADS"] = str(threads)
    command = [sys.executable, "-c", FIT, network, place, str(threads)]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    _, *repeats = (tuple(map(float, line.split())) for line in printed.splitlines())
    return min(cpu for cpu, _ in repeats), min(wall for _, wall in repeats)


def _fit(network: str, place: str, threads: int | None, bound: float | None) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        clock = 0 if threads == 1 else 1
        ratios = []
        for _ in range(min(3, effort.repeats)):
            unit = seconds(network, "environment", 1)[clock]
            ratios.append(seconds(network, place, threads)[clock] / unit)
        name = f"fit kron ggn {network}, {'no number of threads' if threads is None else f'{threads} by {place}'}"
        note = f"{'wall-clock' if clock else 'CPU'} seconds, {os.cpu_count()} cores"
        return Result(name, "same fit, OMP_NUM_THREADS=1", Spread.of(ratios), bound, note=note)

    return measure


for _network in ("mlp", "lenet"):
    for _place, _threads, _bound in SETTINGS:
        row(f"threads-{_place}-{_threads or 'any'}-{_network}")(_fit(_network, _place, _threads, _bound))
