"""Draws that can be repeated, and leave the user's own as they were."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw with a seed from torch's own random state, which is given back as it was found.

    >>> with seeded(0):
    ...     torch.rand(1)
    tensor([0.4963])
    """
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
