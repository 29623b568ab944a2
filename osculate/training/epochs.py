"""Data as Lightning reads them: one seeded, checked pass per epoch, the same pass again after a resume."""

from collections.abc import Iterable, Iterator, Sized

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from osculate.batches import Data, as_batches, is_pair
from osculate.inputs import Inputs, take


class Epochs:
    """Training data, one pass per epoch; `epoch` says which pass comes next, `in_order` gives them unshuffled.

    A pass is a function of (seed, epoch) alone: it seeds torch's generator, draws its order, and yields checked
    batches. So a run that was stopped and resumed sees the same batches and the same dropout masks as one that was
    not. A loader of the user keeps its own order; where it shuffles without a generator of its own, that order
    follows from the same seed.
    """

    def __init__(self, data: Data, batch_size: int, seed: int) -> None:
        self.in_order = Fixed(data, batch_size)
        self.num_data, self.num_batches = self.in_order.num_data, self.in_order.num_batches
        self.epoch = 0
        self._data, self._batch_size, self._seed = data, batch_size, seed

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[tuple[Inputs, Tensor]]:
        # Lightning asks for the first iterator before the epoch has begun, and for the first batch after: a generator
        # reads the counter only then. The caller has put torch's random state aside (see `loop.fit`).
        torch.manual_seed(_mixed(self._seed, self.epoch))
        yield from as_batches(self._pass())

    def _pass(self) -> Iterable:
        if is_pair(self._data):
            inputs, targets = self._data
            order = torch.randperm(self.num_data)
            return ((take(inputs, rows), targets[rows]) for rows in order.split(self._batch_size))
        if isinstance(self._data, Dataset) and not isinstance(self._data, IterableDataset):
            return DataLoader(self._data, batch_size=self._batch_size, shuffle=True)
        return self._data


class Fixed:
    """Data in their own order: the same checked batches every time, as far as a loader gives the same."""

    def __init__(self, data: Data, batch_size: int) -> None:
        self.num_data, self.num_batches = _size(data, batch_size)
        self._data, self._batch_size = data, batch_size

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[tuple[Inputs, Tensor]]:
        return as_batches(self._data, self._batch_size)


def _size(data: Data, batch_size: int) -> tuple[int, int]:
    """Number of data and of batches: known from a loader over a data set, counted in one pass otherwise."""
    if isinstance(data, Iterator):
        raise TypeError(
            f"{type(data).__name__} can be read only once, and training reads the data once an epoch: "
            "pass a list of batches, a DataLoader or a pair of tensors (X, Y)."
        )
    if isinstance(data, DataLoader) and not isinstance(data.dataset, IterableDataset):
        known = data.batch_size is not None and isinstance(data.sampler, Sized) and len(data) > 0
        if known:
            return len(data.sampler), len(data)  # type: ignore[arg-type]
    lengths = [len(y) for _, y in as_batches(data, batch_size)]
    return sum(lengths), len(lengths)


def _mixed(seed: int, epoch: int) -> int:
    """One 64-bit seed from two numbers, without neighbours sharing a stream."""
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> 1)
