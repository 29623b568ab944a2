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


def seed_default(seed: int) -> None:
    """Seed torch's default generators, when no other thread draws within :func:`seeded`."""
    with _DEFAULT_GENERATOR:
        torch.manual_seed(seed)


@contextmanager
def preserved(devices: list[int]) -> Iterator[None]:
    """Restore the state of torch's default generators afterwards; other threads wait only while it is read and set.

    Args:
        devices: Indices of the CUDA devices whose state is restored too.
    """
    fork = torch.random.fork_rng(devices)
    with _DEFAULT_GENERATOR:
        fork.__enter__()
    try:
        yield
    finally:
        with _DEFAULT_GENERATOR:
            fork.__exit__(None, None, None)


class Stream:
    """The draws of torch's default generators from one seed, in parts between which other threads take their turn.

    Args:
        seed: Seed of the random draws.
        device: The device that draws; by default any.

    >>> stream, parts = Stream(0), []
    >>> for _ in range(2):
    ...     with stream.continued():
    ...         parts.append(torch.rand(1))
    >>> with seeded(0):
    ...     torch.equal(torch.rand(2), torch.cat(parts))
    True
    """

    def __init__(self, seed: int, device: torch.device | None = None) -> None:
        self._seed = seed
        self._devices: list[Any] = list(range(torch.cuda.device_count()))
        if device is not None:
            self._devices = [device] if device.type == "cuda" else []
        self._states: list[Tensor] = []

    @contextmanager
    def continued(self) -> Iterator[None]:
        """Draw where the previous part ended, and restore torch's own state afterwards; other threads wait."""
        with _DEFAULT_GENERATOR, torch.random.fork_rng(self._devices):
            if self._states:
                torch.set_rng_state(self._states[0])
                for device, state in zip(self._devices, self._states[1:], strict=True):
                    torch.cuda.set_rng_state(state, device)
            else:
                torch.random.default_generator.manual_seed(self._seed)
                for device in self._devices:
                    with torch.cuda.device(device):
                        torch.cuda.manual_seed(self._seed)
            yield
            self._states = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, self._devices)]


def drawn_on(like: Tensor, generator: torch.Generator | None) -> torch.device:
    """The device on which random numbers are drawn: that of the generator, if there is one."""
    require_generator(generator)
    return like.device if generator is None else generator.device


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's default generators, and restore their state afterwards; other threads wait for their turn.

    Only draws within :func:`seeded` and :func:`fresh_seed` wait. A thread that draws directly from torch's
    default generator changes what another thread draws here: give each thread a generator.

    Args:
        seed: Seed of the random draws.
        device: The device that draws; by default any.

    >>> with seeded(0):
    ...     torch.rand(1)
    tensor([0.4963])
    """
    with Stream(seed, device).continued():
        yield
