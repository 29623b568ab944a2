"""Inputs that are vectors as the user knows them: columns by name, numbers in their own units, categories as words."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from osculate.cli.checkpoint import Card
from osculate.data.own.columns import CATEGORY, NUMBER, Column
from osculate.data.own.table_inputs import TableInputs

#: Values of a column that are tried.
VALUES = 33


@dataclass(frozen=True)
class ShownColumns:
    """The columns of a table, or the numbers of a vector.

    Args:
        each: The columns that the network gets.
    """

    each: tuple[Column, ...]

    @classmethod
    def of(cls, card: Card) -> "ShownColumns":
        """Those of a network; none if its inputs are no vectors."""
        inputs, scaling = card.schema.inputs, card.scaling("input")
        if isinstance(inputs, TableInputs):
            return cls(tuple(column for column in inputs.columns if column.features))
        size = card.input_shape[0] if len(card.input_shape) == 1 else 0
        pairs = (
            [(0.0, 1.0)] * size if scaling is None else zip(scaling.mean.tolist(), scaling.scale.tolist(), strict=True)
        )
        names = (f"input {n + 1}" for n in range(size))
        return cls(tuple(Column(name, NUMBER, scaling=pair) for name, pair in zip(names, pairs, strict=True)))

    @cached_property
    def places(self) -> list[slice]:
        """The numbers of each column among those of an input."""
        ends = torch.tensor([0, *(len(column.features) for column in self.each)]).cumsum(0).tolist()
        return [slice(start, end) for start, end in zip(ends[:-1], ends[1:], strict=True)]

    def facts(self) -> list[dict[str, Any]]:
        """Name, kind and categories of each column."""
        return [
            {"name": column.name, "kind": column.kind, "categories": list(column.categories)} for column in self.each
        ]

    def rows(self, x: Tensor) -> list[list[Any]]:
        """Values of inputs (N, F) in each row: numbers in their own units, words, and None for missing ones."""
        found = [_own(column, x[:, place]) for column, place in zip(self.each, self.places, strict=True)]
        return [list(row) for row in zip(*found, strict=True)]

    def tried(self, x: Tensor, index: int) -> tuple[list[Any], Tensor]:
        """Values of a column over the range of inputs (N, F), or its most frequent categories.

        Returns:
            The values as in :meth:`rows`, and the numbers (V, F of the column) that the network gets for them.
        """
        column, part = self.each[index], x[:, self.places[index]]
        if column.kind == CATEGORY:
            kept = part[:, : len(column.categories)].sum(0).argsort(descending=True)[:VALUES].sort().values
            entries = torch.eye(part.shape[1])[kept]
        else:
            present = part[part[:, 1] == 0, 0] if column.missing else part[:, 0]
            low, high = (present if len(present) else part[:, 0]).quantile(torch.tensor([0.01, 0.99])).tolist()
            entries = torch.zeros(VALUES, part.shape[1])
            entries[:, 0] = torch.linspace(low, high, VALUES)
        return _own(column, entries), entries


def _own(column: Column, part: Tensor) -> list[Any]:
    """The numbers of one column (N, F of the column) as the user knows them."""
    if column.kind == CATEGORY:
        words = part[:, : len(column.categories)]
        return [
            column.categories[place] if known else None
            for place, known in zip(words.argmax(1).tolist(), words.any(1).tolist(), strict=True)
        ]
    values, (mean, scale) = part[:, 0].tolist(), column.scaling
    if column.scaling == (0.0, 1.0):
        own = [float(f"{value:.6g}") for value in values]
    else:
        digits = 5 - math.floor(math.log10(scale))  # single precision has no more
        own = [round(value * scale + mean, digits) for value in values]
    absent = part[:, 1].bool().tolist() if column.missing else [False] * len(part)
    return [None if gone else value for value, gone in zip(own, absent, strict=True)]
