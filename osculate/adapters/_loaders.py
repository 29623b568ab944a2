"""Loaders of other libraries as pairs of inputs and targets."""

from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader

from osculate.batches import counted_once


@dataclass(frozen=True, eq=False)
class Pairs:
    """The batches of a loader as pairs (x, y), anew in every pass.

    Args:
        loader: The loader.
        pair: Function from a batch of the loader to a pair.
        batches: Number of batches of a pass at most; None for all.
    """

    loader: Iterable
    pair: Callable[[Any], Any]
    batches: int | None = None

    def __iter__(self) -> Iterator[Any]:
        own = counted_once(self.loader) if isinstance(self.loader, DataLoader) else self.loader
        return map(self.pair, islice(own, self.batches))

    def __len__(self) -> int:
        if not isinstance(self.loader, Sized):
            raise TypeError(f"{type(self.loader).__name__} has no length.")
        return len(self.loader) if self.batches is None else min(len(self.loader), self.batches)
