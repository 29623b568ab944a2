"""Random numbers that can be repeated, and leave the user's own as they were."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch
from torch import Tensor

from osculate.checks import require_generator

#: torch's default generator is one for all threads.
_DEFAULT_GENERATOR = RLock()


def fresh_seed(generator: torch.Generator | None = None) -> int:
    """Draw a seed from a generator, by default torch's own, which no other thread seeds at that moment."""
    device = "cpu" if generator is None else generator.device
    with _DEFAULT_GENERATOR:
        return int(torch.randint(2**62, (), generator=generator, device=device))


def drawn_on(like: Tensor, generator: torch.Generator | None) -> torch.device:
    """The device on which random numbers are drawn: that of the generator, if there is one."""
    require_generator(generator)
    return like.device if generator is None else generator.device


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's default generators, and restore their state afterwards; other threads wait for their turn.

    Only draws within :func:`seeded` and :func:`fresh_seed` wait. A thread that draws from torch's default generator by
    itself changes what another thread draws here: give each thread a generator.

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
