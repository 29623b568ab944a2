"""Loaders of other libraries as pairs of inputs and targets."""

from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader

from osculate.batches import counted_once
from osculate.randomness import preserved


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


def few_rows(loader: Any, rows: int = 2) -> Any:
    """A batch of the first rows of a loader's data set; None for a stream, or rows without numbers.

    Args:
        loader: The loader, which stays where it is, as do torch's random numbers.
        rows: Number of rows, if the loader collates them.
    """
    data: Any = getattr(loader, "dataset", None)
    collate: Any = getattr(loader, "collate_fn", None)
    if collate is None or not hasattr(data, "__getitem__") or not hasattr(data, "__len__") or not len(data):
        return None
    with preserved([]):  # transforms and collators may draw
        try:
            first = [data[n] for n in range(min(rows, len(data)))]
        except (LookupError, TypeError):
            return None
        return collate(first[0] if getattr(loader, "batch_sampler", loader) is None else first)
