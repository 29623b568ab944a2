"""Data for Lightning: one seeded, checked pass per epoch, which a resumed run repeats."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from osculate.batches import Data, Fixed, as_batches, shuffled
from osculate.inputs import Inputs


class Epochs:
    """Training data, one pass per epoch; `epoch` is the number of the next pass, `in_order` gives unshuffled data.

    A pass is a function of (seed, epoch) alone: it seeds torch's generator, draws its order, and yields checked
    batches. A resumed run therefore sees the same batches and dropout masks as an uninterrupted one. A user's loader
    keeps its own order; if it shuffles without its own generator, the order follows from the same seed.
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
        mixed = np.random.SeedSequence([self._seed, self.epoch])  # neighbouring seeds share no stream
        torch.manual_seed(int(mixed.generate_state(1, np.uint64)[0] >> 1))
        yield from as_batches(shuffled(self._data, self._batch_size))
