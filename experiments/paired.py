"""Errors of paired differences over the test data that all seeds share, by the bootstrap; records keep them by name."""

from collections.abc import Mapping, Sequence
from math import hypot

import numpy as np
import torch
from torch import Tensor

#: Entry of a record's data with these standard errors, by the name of what is compared.
ERRORS = "errors over test data"


def beside(row: str, other: str, column: str) -> str:
    """Return the name of the comparison of two rows in a column."""
    return f"{row} beside {other}, {column}"


def columns_of(row: str, column: str, other: str) -> str:
    """Return the name of the comparison of two columns of a row."""
    return f"{row}, {column} beside {other}"


def beside_best(row: str, column: str, other: str) -> str:
    """Return the name of the comparison of a cell with the best column of another row."""
    return f"{row}, {column} beside the best of {other}"


def bootstrap_error(differences: np.ndarray, draws: int = 1000, seed: int = 0) -> float:
    """Return the standard error of a mean difference over test data that all seeds share.

    Args:
        differences: Paired differences by seed and test datum.
        draws: Number of resampled test sets; each is the same for all seeds.
        seed: Seed of the draws.
    """
    by_datum, generator = differences.mean(axis=0), np.random.default_rng(seed)
    return float(np.std([generator.choice(by_datum, len(by_datum)).mean() for _ in range(draws)], ddof=1))


def difference_error(values: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    """Return the error of a mean difference of losses.

    Args:
        values: Losses of each datum, seed by seed.
        others: Losses that they are compared with.
    """
    return bootstrap_error((_stacked(values) - _stacked(others)).numpy())


def ratio_error(values: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    """Return the error of the logarithm of a ratio of mean losses, to first order in the losses of each datum.

    Args:
        values: Losses of each datum, seed by seed.
        others: Losses that they are compared with.
    """
    apart = [each / each.mean(1, keepdim=True) for each in (_stacked(values), _stacked(others))]
    return bootstrap_error((apart[0] - apart[1]).numpy())


#: Shares of the outside scores above each inside one, and of the inside scores below each outside one.
Places = tuple[Tensor, Tensor]


def places(inside: Tensor, outside: Tensor) -> Places:
    """Return the shares whose means are both the area under the ROC curve; equal scores count half."""
    return 1 - _below(inside, outside), _below(outside, inside)


def area_error(areas: Sequence[Places], others: Sequence[Places]) -> float:
    """Return the error of a mean difference of areas under ROC curves [delong1988].

    Args:
        areas: Shares by :func:`places`, seed by seed.
        others: Shares that they are compared with.
    """
    pairs = (zip(*each, strict=True) for each in (areas, others))
    return hypot(*(difference_error(own, other) for own, other in zip(*pairs, strict=True)))


def errors_in(data: Mapping[str, object]) -> dict[str, float]:
    """Return the errors that the data of a record hold, by the name of what is compared."""
    found = data.get(ERRORS, {})
    assert isinstance(found, Mapping)
    return dict(found)


def _below(scores: Tensor, others: Tensor) -> Tensor:
    ordered = others.contiguous().sort().values
    counts = (torch.searchsorted(ordered, scores.contiguous(), right=right) for right in (False, True))
    return torch.stack([count.double() for count in counts]).mean(0) / len(others)


def _stacked(values: Sequence[Tensor]) -> Tensor:
    return torch.stack([torch.as_tensor(each, dtype=torch.double) for each in values])
