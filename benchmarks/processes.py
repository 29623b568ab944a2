"""``torchrun --nproc-per-node 2 -m benchmarks.processes mlp``: fits that share the data beside independent ones.

Wall-clock seconds between barriers, interleaved: each process fits its half alone, then both halves together.
"""

import json
import subprocess
import sys
import time

import torch
import torch.distributed as dist

import osculate as osc
from benchmarks.networks import setting
from osculate.distributed import job

#: Processes, and pairs of fits.
PROCESSES, REPEATS = 2, 7


def seconds(network: str, structure: str) -> list[tuple[float, float]]:
    """Seconds of independent simultaneous fits and of one that shares the data, in pairs.

    Raises:
        RuntimeError: a process failed; the message is what it printed.
    """
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(PROCESSES)]
    done = subprocess.run([*start, "-m", "benchmarks.processes", network, structure], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def _measured(network: str, structure: str, rank: int) -> list[tuple[float, float]]:
    data, likelihood = setting(network), osc.likelihoods.Categorical()
    share = slice(rank, None, PROCESSES)
    own = [(x[share], y[share]) for x, y in data.batches]

    def fit(distributed: str | bool) -> float:
        dist.barrier()
        start = time.perf_counter()
        osc.laplace(data.model, likelihood, own, structure=structure, prior=1.0, refine=False, distributed=distributed)
        dist.barrier()
        return time.perf_counter() - start

    fit(False), fit("auto")
    return [(fit(False), fit("auto")) for _ in range(REPEATS)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    with job() as processes:
        found = _measured(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "kron", processes.rank)
        if processes.rank == 0:
            print(json.dumps(found))
