"""``python -m benchmarks.streams``: fits to memory-mapped arrays of ten million rows, in a folder that is removed.

What counts is anonymous memory above that before the fit, and rows per second of wall-clock time, by structure.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

import osculate as osc
from benchmarks.resident import STRUCTURES, rise

#: Rows, features, units of the hidden layer and classes.
ROWS, FEATURES, HIDDEN, CLASSES = 10**7, 20, 50, 2
#: Rows of a batch, and rows that are written at a time.
BATCH, WRITTEN = 4096, 10**5
#: Seconds between two looks at the memory.
INTERVAL = 0.01


def costs(rows: int = ROWS) -> dict[str, tuple[int, float]]:
    """Bytes above base, and rows per second, by structure, measured in a process of its own.

    Raises:
        RuntimeError: the process failed; the message is what it printed.
    """
    command = [sys.executable, "-m", "benchmarks.streams", "--rows", str(rows)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def _written(folder: Path, rows: int) -> None:
    """Write inputs and targets, part by part.

    Raises:
        OSError: the disk has no room for them.
    """
    needed, left = rows * (4 * FEATURES + 8), shutil.disk_usage(folder).free
    if left < 2 * needed:
        raise OSError(f"{needed / 1e9:.1f} GB are to be written, and {left / 1e9:.1f} GB are free in {folder}.")
    random = np.random.default_rng(0)
    x = np.lib.format.open_memmap(folder / "inputs.npy", "w+", np.float32, (rows, FEATURES))
    y = np.lib.format.open_memmap(folder / "targets.npy", "w+", np.int64, (rows,))
    for start in range(0, rows, WRITTEN):
        part = slice(start, min(start + WRITTEN, rows))
        x[part] = random.standard_normal((part.stop - part.start, FEATURES), np.float32)
        y[part] = x[part, 0] + 0.5 * x[part, 1] > 0


def _measured(rows: int, batch: int) -> dict[str, tuple[int, float]]:
    found = {}
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))
    with tempfile.TemporaryDirectory() as folder:
        _written(Path(folder), rows)
        data = osc.data.stream(folder, batch_size=batch)
        few = [next(iter(data))]
        for structure in STRUCTURES:
            fit = partial(osc.laplace, model, osc.likelihoods.Categorical(), structure=structure)
            fit(few, refine=False)  # what a first call allocates for good
            started = time.perf_counter()
            above = rise(partial(fit, data), INTERVAL)
            found[structure] = above, rows / (time.perf_counter() - started)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streams", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--batch", type=int, default=BATCH, help="rows of a batch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the posterior is not refined
    print(json.dumps(_measured(options.rows, options.batch)))
