"""A step of the variational methods in steps of MAP, and what L2M adds to a training."""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from benchmarks.result import Result, row
from benchmarks.timing import Effort, Spread, flops, ratio
from experiments.vl.cells import EVERY, LAPLACE, LIKELIHOOD, MAXIMUM, NATURAL, VARIATIONAL
from experiments.vl.table2 import CLASSES, EXAMPLES, NETWORKS, PIXELS, SMALL, stepping
from osculate.methods import L2M
from osculate.randomness import seeded

BATCH, SIZE = 128, 12_000
#: The largest cost that meets the budget, in steps of MAP.
BOUNDS: dict[str, float | None] = {EVERY: 3.0, LAPLACE: 1.7, VARIATIONAL: 2.2, NATURAL: 1.25, EXAMPLES: None}
NAMES = {EVERY: EVERY, LAPLACE: "VL, default", VARIATIONAL: "VI, local", NATURAL: "IVON", EXAMPLES: "VOGN"}
UNIT = "training step of MAP with Adam, batch 128"
#: Epochs of the training that L2M follows, and its bound.
EPOCHS, EXTRA = 30, 0.01
#: Images for the statistics of the likelihood.
SUBSET = 1_000


def _step(network: str, method: str) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        unit, work = (stepping(network, each, BATCH, SIZE) for each in (MAXIMUM, method))
        spread = ratio(unit, _several(work), replace(effort, repeats=2 * effort.repeats), scale=0.5)
        floor = flops(unit, _several(work)) / 2
        return Result(f"{NAMES[method]}, {network}", UNIT, spread, BOUNDS[method], limit=floor)

    return measure


def _several(step: Callable[[], None]) -> Callable[[], None]:
    """Two steps, of which the default of variational Laplace has one with and one without its regulariser."""

    def steps() -> None:
        step()
        step()

    return steps


for _network in ("MLP", "LeNet", SMALL):
    for _method in BOUNDS:
        _words = [NAMES[_method].replace(", every step", ""), _network.split()[-1]]
        row(f"variational-{'-'.join(_words).lower().replace(', ', '-')}")(_step(_network, _method))


def _extra(what: str, bound: float | None, images: int, **options: Any) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        with seeded(0):
            model, x = NETWORKS["LeNet"][0](), torch.rand(SIZE, *PIXELS)
            y = torch.randint(CLASSES, (SIZE,))
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)

        def epoch() -> None:
            for rows in torch.randperm(SIZE).split(BATCH):
                optimizer.zero_grad()
                (-LIKELIHOOD.log_prob(model(x[rows]), y[rows]).mean()).backward()
                optimizer.step()

        start = time.process_time()
        epoch()
        training = EPOCHS * (time.process_time() - start)
        shares, subset = [], (x[:images], y[:images])
        for _ in range(max(3, effort.repeats // 2)):
            start = time.process_time()
            L2M.from_optimizer(model, optimizer, SIZE, BATCH, LIKELIHOOD, subset, **options)
            shares.append((time.process_time() - start) / training)
        note = f"{1000 * statistics.median(shares):.1f} thousandths of the training"
        return Result(
            f"L2M{what} beside 30 epochs, LeNet", "the training", Spread.of(shares, training), bound, note=note
        )

    return measure


# The state of Adam after 30 epochs; statistics of the likelihood from some of the images, or the evidence of all.
row("l2m-extra")(_extra("", EXTRA, SUBSET, prior_precision=1.0))
row("l2m-extra-evidence")(_extra(", evidence of all data", None, SIZE))
