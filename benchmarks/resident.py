"""``python -m benchmarks.resident NETWORK``: how far a process rises above its base within a budget of memory.

What counts is anonymous memory as the system sees it: with results, copies inside operations, and what the allocator
keeps. A fit, and then a prediction, of one large batch each, by structure.
"""

import argparse
import gc
import json
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

import osculate as osc
from benchmarks.networks import Setting, setting
from osculate.memory import give_back, sparing

#: Structures that are measured, and the data of a batch.
STRUCTURES, POINTS = ("kron", "diag"), 1000
#: Seconds between two looks at the memory.
INTERVAL = 5e-4
STATUS = Path("/proc/self/status")


def rises(network: str, budget: str, points: int = POINTS) -> dict[str, int]:
    """Bytes above base by "structure work", measured in a process of its own.

    Raises:
        RuntimeError: the process failed; the message is what it printed.
    """
    command = [sys.executable, "-m", "benchmarks.resident", network, "--budget", budget, "--points", str(points)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def _measured(network: str, budget: str, points: int) -> dict[str, int]:
    data, found = setting(network), {}
    for structure in STRUCTURES:
        _predicted(_fitted(data, structure, 8, budget), data, 8, budget)  # what a first call allocates for good
        found[f"{structure} fit"] = rise(lambda s=structure: _fitted(data, s, points, budget))
        q = _fitted(data, structure, points, budget)
        found[f"{structure} refine"] = rise(lambda q=q: osc.refine(q))
        found[f"{structure} predict"] = rise(lambda q=q: _predicted(q, data, points, budget))
        found[f"{structure} functions"] = rise(lambda q=q: osc.sample_functions(q, data.x[:points], 20, memory=budget))
    return found


def _fitted(data: Setting, structure: str, points: int, budget: str) -> object:
    batches = [(data.x[:points], data.y[:points])] * 2
    return osc.laplace(
        data.model, osc.likelihoods.Categorical(), batches, structure=structure, memory=budget, refine=False
    )


def _predicted(q: object, data: Setting, points: int, budget: str) -> object:
    return osc.predict(q, data.x[:points], memory=budget)


def _anonymous() -> int:
    found = re.search(r"RssAnon:\s+(\d+)", STATUS.read_text())
    assert found is not None
    return 1024 * int(found[1])


def rise(work: Callable[[], object], interval: float = INTERVAL) -> int:
    """The largest anonymous memory while ``work`` runs, above that before it, at looks so many seconds apart."""
    gc.collect()
    with sparing(1):
        give_back()
    base, over, seen = _anonymous(), threading.Event(), [0]

    def look() -> None:
        while not over.wait(interval):
            seen[0] = max(seen[0], _anonymous() - base)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        result = work()
        seen[0] = max(seen[0], _anonymous() - base)
        del result
    finally:
        over.set()
        thread.join()
    return seen[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resident", description=__doc__)
    parser.add_argument("network", choices=("mlp", "lenet"))
    parser.add_argument("--budget", default="50MB", help='such as "50MB"')
    parser.add_argument("--points", type=int, default=POINTS, help="data of the batch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(json.dumps(_measured(options.network, options.budget, options.points)))
