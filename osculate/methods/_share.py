"""The share of one process in a step of training that several processes take together."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from osculate.distributed import ALONE, Group
from osculate.randomness import seeded


@dataclass(frozen=True)
class Share:
    """The batch of one process in a step; one process alone has all of it, and its methods do nothing.

    Attributes:
        processes: The processes that take the step together.
        own: Number of data of this process; 0 where it repeats a batch because the others have more of them.
        total: Number of data of all processes.
        seed: Seed of random numbers that are the same in all processes.
    """

    processes: Group = ALONE
    own: int = 1
    total: int = 1
    seed: int = 0

    @property
    def distributed(self) -> str | bool:
        """The argument of that name of :func:`osculate.laplace`, for a fit to the data of these processes."""
        return False if self.processes.alone else "auto"

    def size(self, y: Tensor) -> int:
        """B, the number of data in the batches of all processes, from the targets of this one."""
        return len(y) if self.processes.alone else self.total

    def sum_(self, sums: Iterable[Tensor]) -> None:
        """Replace sums over this batch by those over the batches of all processes, in place."""
        if self.processes.alone:
            return
        sums = list(sums)
        if not self.own:
            torch._foreach_zero_(sums)
        self.processes.sum_(sums)

    def average_(self, averages: Iterable[Tensor]) -> None:
        """Replace averages over this batch by those over the batches of all processes, in place."""
        if self.processes.alone:
            return
        averages = list(averages)
        torch._foreach_mul_(averages, self.own / self.total)
        self.processes.sum_(averages)

    @contextmanager
    def same_draws(self, step: int) -> Iterator[None]:
        """Let all processes draw the same random numbers, which differ from step to step."""
        if self.processes.alone:
            yield
        else:
            with seeded((self.seed + 0x9E3779B97F4A7C15 * (step + 1)) % 2**63):
                yield


#: The share of one process alone.
WHOLE = Share()
