"""The content of a file, folder or object before anything is inferred from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np

#: Columns to copy into tables of predictions, by name: identifiers, names of files.
Labels: TypeAlias = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, eq=False)
class Content:
    """Rows as they are in the source.

    Args:
        name: Name of the source in messages.
        x: A pandas table of input columns, or an array (N, …).
        y: Targets (N,) or (N, C), words or numbers; None without targets.
        names: Names of the targets.
        groups: Groups of the rows (N,), which are not divided between the parts, or None.
        split: Names of the parts (N,), or None.
        labels: Names of the rows, such as those of files.
    """

    name: str
    x: Any
    y: np.ndarray | None = None
    names: tuple[str, ...] = ()
    groups: np.ndarray | None = None
    split: np.ndarray | None = None
    labels: Labels = field(default_factory=dict)

    @property
    def is_table(self) -> bool:
        """True if the inputs are named columns."""
        return hasattr(self.x, "columns")


@dataclass(frozen=True)
class Fingerprint:
    """Number and digest of the rows of some data, by which a change is noticed.

    Args:
        rows: Number of rows.
        digest: Digest of the values of these rows, in their order.
    """

    rows: int
    digest: str

    @classmethod
    def of(cls, content: Content, rows: int | None = None) -> "Fingerprint":
        """The source of all rows, or of the first ones."""
        rows = len(content.x) if rows is None else rows
        found = blake2b(digest_size=16)
        columns = [content.x[name] for name in content.x.columns] if content.is_table else [content.x]
        for values in (*columns, content.y, content.groups, content.split):
            if values is not None:
                found.update(_bytes(np.asarray(values[:rows])))
        return cls(rows, found.hexdigest())

    def require_same(self, content: Content) -> None:
        """Raise ValueError if the rows are others, so that random parts would mix training and test rows."""
        rows, apart = len(content.x), "osculate evaluate --data and predict --inputs take a file of new rows alone"
        if rows >= self.rows and Fingerprint.of(content, self.rows) == self:
            if rows > self.rows:
                raise ValueError(
                    f"{content.name} has {rows - self.rows:,} rows more than the {self.rows:,} of the training, and "
                    f"its random parts would mix training and test rows: {apart}; or train again."
                )
            return
        raise ValueError(
            f"{content.name} has changed since the training, when it had {self.rows:,} rows (now {rows:,}), and its "
            f"random parts would mix training and test rows: restore the file, or train again; {apart}."
        )


def _bytes(values: np.ndarray) -> bytes | memoryview:
    """Values for a digest: numbers as they are, others as words, whatever stands for missing ones."""
    if values.dtype.kind in "biuf":
        return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
    words = (str(value) for value in values.reshape(-1).tolist())
    return "\0".join("" if word in ("nan", "None", "<NA>", "NaT") else word for word in words).encode()


@dataclass(frozen=True)
class Named:
    """Names and words that the user has given.

    Args:
        target: Names of the target columns or of the target array; empty for no targets, None where none was given.
        groups: Name of the column or array of the groups.
        split_column: Name of the column or array with the part of each row.
        missing: Words of text files that count as missing beside empty cells, or None for the usual ones.
    """

    target: tuple[str, ...] | None = None
    groups: str | None = None
    split_column: str | None = None
    missing: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Wanted(Named):
    """Parts of a source that are wanted, by the names that the user has given.

    Args:
        image_size: Height and width to which images are cropped and scaled, or None to keep theirs.
        channels: Number of channels of images, 1 or 3, or None for what they have.
        targets: False if targets are not needed, as for predictions.
        parts: False if all rows are wanted alike: groups and parts are not looked for.
    """

    image_size: tuple[int, int] | None = None
    channels: int | None = None
    targets: bool = True
    parts: bool = True


def listed(names: Sequence[Any], most: int = 12) -> str:
    """Names for a message, the first ones of many."""
    shown = ", ".join(map(repr, list(names)[:most]))
    return f"{shown}, … ({len(names)} in all)" if len(names) > most else shown or "nothing"
