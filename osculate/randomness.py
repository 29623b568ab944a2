"""Random numbers that can be repeated, and leave the user's own as they were."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch

#: torch's default generator is one for all threads.
_DEFAULT_GENERATOR = RLock()


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's default generators, and restore their state afterwards; other threads wait for their turn.

    Args:
        seed: Seed of the random draws.
        device: The device that draws; by default any.

    >>> with seeded(0):
    ...     torch.rand(1)
    tensor([0.4963])
    """
    devices: list[Any] = list(range(torch.cuda.device_count()))
    if device is not None:
        devices = [device] if device.type == "cuda" else []
    with _DEFAULT_GENERATOR, torch.random.fork_rng(devices):
        torch.random.default_generator.manual_seed(seed)
        for index in devices:
            with torch.cuda.device(index):
                torch.cuda.manual_seed(seed)
        yield
