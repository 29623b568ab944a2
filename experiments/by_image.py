"""Scores of each test image by several ways to predict, and the errors over these images of their differences."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from math import hypot
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from experiments import paired
from experiments.evaluation import logs

#: Entries of a way to predict: scores of each test image by column, and the shares that give the AUROC of each set.
IMAGES, PLACES = "images", "places"


def by_image(probs: Float[Tensor, "N C"], y: Int[Tensor, " N"], columns: tuple[str, str]) -> dict[str, Tensor]:
    """Return the NLL of each image, in nats, and its accuracy, 0 or 100 %, by column.

    Args:
        probs: Class probabilities.
        y: Labels.
        columns: Names of the two.
    """
    rows = torch.arange(len(y))
    return dict(zip(columns, (-logs(probs)[rows, y], 100.0 * (probs.argmax(1) == y)), strict=True))


#: Entries of each row of a table, seed by seed; the rows of several tasks begin with their task and ": ".
Rows = Mapping[str, Sequence[Mapping[str, Any]]]


def errors_over_images(rows: Rows) -> dict[str, float]:
    """Return the errors over images of all differences of two rows of a task, by their names.

    Args:
        rows: Rows with the entry :data:`IMAGES`.
    """
    found = {}
    for row, other in _pairs(rows):
        for column in rows[row][0][IMAGES]:
            own, theirs = ([run[IMAGES][column] for run in rows[name]] for name in (row, other))
            found[paired.beside(row, other, column)] = _rounded(paired.difference_error(own, theirs))
    return found


def errors_of_detection(rows: Rows, detection: str) -> dict[str, float]:
    """Return the errors over images of all differences of two rows' AUROC, by their names.

    Args:
        rows: Rows with the entry :data:`PLACES`.
        detection: Name of the AUROC averaged over the out-of-distribution sets.
    """
    found = {}
    for row, other in _pairs(rows):
        inside, *far = zip(*(zip(*_sides(rows[name]), strict=True) for name in (row, other)), strict=True)
        error = hypot(paired.difference_error(*inside), *(paired.difference_error(*each) / len(far) for each in far))
        found[paired.beside(row, other, detection)] = _rounded(error)
    return found


def _pairs(rows: Rows) -> Iterator[tuple[str, str]]:
    """Yield the names of two rows of the same task and of as many seeds."""
    for row, other in permutations(rows, 2):
        if _task(row) == _task(other) and len(rows[row]) == len(rows[other]):
            yield row, other


def _task(row: str) -> str:
    task, found, _ = row.partition(": ")
    return task if found else ""


def _rounded(error: float) -> float:
    return float(f"{error:.3g}")


def _sides(runs: Sequence[Mapping[str, Any]]) -> list[list[Tensor]]:
    """Return for each run the shares of the images of the task, averaged over the other sets, and of each of these."""
    return [
        [torch.stack([inside for inside, _ in run[PLACES]]).mean(0), *(far for _, far in run[PLACES])] for run in runs
    ]
