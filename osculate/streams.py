"""Streams of rows that need not fit into memory: batches that are read when they are needed, in every pass again."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from osculate.checks import require_whole
from osculate.distributed import Group
from osculate.inputs import copied, from_arrays

#: Inputs and targets of some rows.
Pair: TypeAlias = tuple[np.ndarray, np.ndarray]


@runtime_checkable
class Shard(Protocol):
    """A part of the rows, such as those of one file."""

    @property
    def size(self) -> int:
        """Number of rows."""

    def read(self, parts: Iterable[slice]) -> Iterator[Pair]:
        """Yield inputs and targets of these rows, part by part.

        Args:
            parts: Slices, each of which begins where the one before ends or later.
        """


@dataclass(frozen=True, eq=False)
class Arrays:
    """A shard of two arrays, in memory or memory-mapped."""

    x: np.ndarray
    y: np.ndarray

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.y)

    def read(self, parts: Iterable[slice]) -> Iterator[Pair]:
        """Yield inputs and targets of these rows, part by part."""
        return ((self.x[part], self.y[part]) for part in parts)


class RowStream:
    """Batches ``(x, y)`` of rows that are read anew in every pass, one batch at a time, in their own order.

    Batches do not end where a shard ends: they are the same for any number of shards.

    Args:
        shards: The rows, one shard after another.
        batch_size: Rows of a batch; the last one may have fewer.
        dtype: Floating type of inputs and of targets that are real numbers; whole numbers as targets become int64.
            None leaves all types as they are.
        rows: The part of the rows that is passed over, None for all.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        batch_size: int,
        dtype: torch.dtype | None = torch.float32,
        rows: slice | None = None,
    ) -> None:
        require_whole("batch_size", batch_size)
        self._shards, self.batch_size, self.dtype = tuple(shards), batch_size, dtype
        self._rows = slice(0, sum(shard.size for shard in self._shards)) if rows is None else rows

    @property
    def num_rows(self) -> int:
        """Number of rows of a pass."""
        return self._rows.stop - self._rows.start

    @property
    def num_bytes(self) -> int:
        """Bytes of all rows, if they were held in memory. Cost: reads one of them."""
        return self.num_rows * sum(part.nbytes for row in self.rows([0]) for part in row)

    def __len__(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        start, stop, step = self._rows.start, self._rows.stop, self.batch_size
        held: list[tuple[Tensor, Tensor]] = []
        for first, shard in self._placed():
            low, high = max(start, first), min(stop, first + shard.size)
            if low >= high:
                continue
            edges = range(low + (start - low) % step, high, step)  # where a batch begins
            begins = edges if edges and edges[0] == low else (low, *edges)
            ends = (*begins[1:], high)
            parts = (slice(a - first, b - first) for a, b in zip(begins, ends, strict=True))
            for end, piece in zip(ends, shard.read(parts), strict=True):
                held.append(self._tensors(*piece))
                if end == stop or (end - start) % step == 0:
                    yield held[0] if len(held) == 1 else _joined(held)
                    held = []

    def rows(self, indices: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """Single rows, in a pass over the shards that hold them.

        Args:
            indices: Numbers of the rows, which grow.
        """
        found = []
        for first, shard in self._placed():
            own = [index + self._rows.start - first for index in indices]
            own = [index for index in own if 0 <= index < shard.size]
            if own:
                found += [self._tensors(*each) for each in shard.read(slice(n, n + 1) for n in own)]
        return found

    def share(self, rank: int, size: int) -> "RowStream":
        """The rows of one of several processes: contiguous, as even as possible, and none where there are too few.

        Args:
            rank: Number of the process, from 0.
            size: Number of processes.

        Raises:
            ValueError: there is no such process.
        """
        require_whole("size", size)
        require_whole("rank", rank, least=0)
        if rank >= size:
            raise ValueError(f"rank must be smaller than size={size}, as those of processes that count from 0: {rank}.")
        part, first = Group(rank, size).share(self.num_rows), self._rows.start
        return RowStream(self._shards, self.batch_size, self.dtype, slice(first + part.start, first + part.stop))

    def _placed(self) -> Iterator[tuple[int, Shard]]:
        """Each shard with the number of its first row."""
        first = 0
        for shard in self._shards:
            yield first, shard
            first += shard.size

    def _tensors(self, x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
        """A copy of some rows as tensors."""
        inputs, targets = copied(x), copied(y)
        if self.dtype is None:
            return inputs, targets
        return inputs.to(self.dtype), targets.to(self.dtype if targets.is_floating_point() else torch.long)

    def __repr__(self) -> str:
        """Sizes, and no rows."""
        return f"RowStream(num_rows={self.num_rows:,}, batches={len(self):,}, batch_size={self.batch_size:,})"


def _joined(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def lazily(data: Any, batch_size: int, dtype: torch.dtype | None = None) -> Any:
    """The data, with tensors in place of NumPy arrays, or a stream where one at least is memory-mapped.

    Args:
        data: Data in any form.
        batch_size: Rows of a batch of such a stream.
        dtype: Floating type of arrays in memory; None leaves their own. Whole numbers as targets become int64.

    Raises:
        ValueError: the two arrays differ in length.
        TypeError: one of them holds no real numbers.
    """
    if not (isinstance(data, tuple | list) and len(data) == 2):
        return data
    x, y = data
    if not any(isinstance(each, np.memmap) for each in data):
        if isinstance(y, np.ndarray):
            y = from_arrays(y, dtype)
            return from_arrays(x, dtype), y if y.is_floating_point() else y.long()
        return (from_arrays(x, dtype), y) if isinstance(x, np.ndarray) else data
    if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray):
        x, y = (each.numpy(force=True) if isinstance(each, Tensor) else each for each in data)
    for name, array in (("X", x), ("Y", y)):
        if not isinstance(array, np.ndarray) or array.ndim == 0 or array.dtype.kind not in "biuf":
            what = f"of type {array.dtype}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
            raise TypeError(f"{name} beside a memory-mapped array is {what}: give an array of real numbers with rows.")
    if len(x) != len(y):
        raise ValueError(f"X has {len(x)} rows and Y has {len(y)}: give each input one target.")
    return RowStream([Arrays(x, y)], batch_size, dtype=None)
