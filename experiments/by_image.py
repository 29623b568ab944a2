"""Scores of each test image by several ways to predict, and the errors over these images of their differences."""

from collections.abc import Mapping, Sequence
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


def errors_over_images(rows: Mapping[str, Sequence[Mapping[str, Any]]], detection: str) -> dict[str, float]:
    """Return the errors over images of all differences of two rows of a task, by their names.

    Args:
        rows: Entries :data:`IMAGES` and :data:`PLACES` of every row, seed by seed; rows begin with their task and ": ".
        detection: Name of the AUROC averaged over the out-of-distribution sets.
    """
    found = {}
    for row, other in permutations(rows, 2):
        if row.partition(": ")[0] != other.partition(": ")[0]:
            continue
        for column in rows[row][0][IMAGES]:
            own, theirs = ([run[IMAGES][column] for run in rows[name]] for name in (row, other))
            found[paired.beside(row, other, column)] = paired.difference_error(own, theirs)
        inside, *far = zip(*(zip(*_sides(rows[name]), strict=True) for name in (row, other)), strict=True)
        found[paired.beside(row, other, detection)] = hypot(
            paired.difference_error(*inside), *(paired.difference_error(*each) / len(far) for each in far)
        )
    return {name: float(f"{error:.3g}") for name, error in found.items()}


def _sides(runs: Sequence[Mapping[str, Any]]) -> list[list[Tensor]]:
    """Return for each run the shares of the images of the task, averaged over the other sets, and of each of these."""
    return [
        [torch.stack([inside for inside, _ in run[PLACES]]).mean(0), *(far for _, far in run[PLACES])] for run in runs
    ]
