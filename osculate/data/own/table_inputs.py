"""Inputs from a table: columns as numbers, with the statistics of the training rows."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from osculate.data.dataset import Scaling
from osculate.data.own.columns import CATEGORY, Column
from osculate.data.own.content import Content, Labels, listed
from osculate.data.own.tables import missing_words

#: Reasons by which a column names the rows.
NAMES_ROWS = "an identifier"


@dataclass(frozen=True)
class TableInputs:
    """The columns of a table, and what becomes of each.

    Args:
        columns: All columns but those of targets, groups and parts, in the order of the file.
        words: Words of a file that count as missing, in words, by the name of their column.
    """

    columns: tuple[Column, ...]
    words: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, content: Content, chosen: Mapping[str, str]) -> "TableInputs":
        """The kinds of the columns; statistics follow from :meth:`fitted`.

        Raises:
            ValueError: a column that is chosen does not exist, or no column is left.
        """
        frame = content.x
        for name in chosen:
            if name not in frame.columns:
                raise ValueError(f"{content.name} has no input column {name!r}: it has {listed(list(frame.columns))}.")
        columns = tuple(Column.of(frame[name], chosen.get(name), content.name) for name in frame.columns)
        return cls(columns, {name: words for name in frame.columns if (words := missing_words(frame, name))})

    def fitted(self, content: Content, rows: np.ndarray, standardise: bool | None) -> "TableInputs":
        """The same with the statistics of these rows.

        Raises:
            ValueError: no column is left.
        """
        train = content.x.iloc[rows]
        columns = tuple(
            column.fitted(train[column.name], content.name, standardise is not False) for column in self.columns
        )
        if not any(column.features for column in columns):
            reasons = "; ".join(f"{column.name!r}: {column.reason}" for column in columns)
            raise ValueError(
                f"{content.name} has no column to predict from ({reasons}): name the kind of one, as in "
                f"columns={{{columns[0].name!r}: 'category'}}."
            )
        return replace(self, columns=columns)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the F inputs of the network."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return (len(self.features),)

    @property
    def scaling(self) -> Scaling | None:
        """The standardisation of the F inputs; entries of categories are left as they are."""
        pairs = [
            (0.0, 1.0) if column.kind == CATEGORY or number else column.scaling
            for column in self.columns
            for number, _ in enumerate(column.features)
        ]
        mean, scale = torch.tensor(pairs, dtype=torch.float32).T
        return None if bool((mean == 0).all() and (scale == 1).all()) else Scaling(mean.clone(), scale.clone())

    def tensor(self, content: Content) -> Float[Tensor, "N F"]:
        """The inputs of a network; the code warns of categories and missing values that training rows do not have.

        Raises:
            ValueError: a column of the training is missing or of another kind.
        """
        if not content.is_table:
            raise ValueError(
                f"{content.name} is an array, and the network was trained on a table with the columns "
                f"{listed(self._used)}: pass a table."
            )
        frame = content.x
        for name in self._used:
            if name not in frame.columns:
                near = get_close_matches(name, list(frame.columns), n=1)
                hint = f"; it has {near[0]!r}: rename it" if near else ": add it"
                raise ValueError(f"{content.name} lacks the column {name!r} of the training{hint}.")
        known = [column.name for column in self.columns]
        if others := [name for name in frame.columns if name not in known]:
            warnings.warn(f"{content.name} has {listed(others)}, which training did not: ignored.", stacklevel=2)
        parts = [
            column.encoded(frame[column.name], content.name) for column in self.columns if column.name in self._used
        ]
        return torch.from_numpy(np.concatenate(parts, 1)).float()

    @property
    def _used(self) -> list[str]:
        return [column.name for column in self.columns if column.features]

    def labels(self, content: Content) -> Labels:
        """The columns that name the rows, for tables of predictions."""
        names = [column.name for column in self.columns if column.reason == NAMES_ROWS]
        return {name: content.x[name].tolist() for name in names if name in content.x}

    def lines(self) -> list[tuple[str, str]]:
        """Names and descriptions for the print-out."""
        also = {name: f"; {words} counts as missing (--missing)" for name, words in self.words.items()}
        return [(column.name, f"{column}{also.get(column.name, '')}") for column in self.columns]

    def content(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return {"columns": [asdict(column) for column in self.columns], "words": dict(self.words)}

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> "TableInputs":
        """The inputs that :meth:`content` has written."""
        columns = (dict(each) for each in content["columns"])
        return cls(
            tuple(
                Column(**{**each, "categories": tuple(each["categories"]), "scaling": tuple(each["scaling"])})
                for each in columns
            ),
            dict(content.get("words", {})),
        )
