"""Random numbers that can be repeated, and leave the user's own as they were."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from osculate.checks import require_generator

#: 2⁶⁴ over the golden ratio, and shifts and factors that mix bits: those of SplitMix64. [steele2014]
GOLDEN, MIX = 0x9E3779B97F4A7C15, ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
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


class Keyed(torch.Generator):
    """A source of random numbers of data: those of a datum depend on its key, and on no other datum.

    The same data draw the same numbers in any batch, chunk, process and order, on any device. Functions that draw by
    :func:`uniform` and :func:`normal` do so; for others it is a generator whose seed is made of all keys together.

    Args:
        keys: A number for each datum, see :func:`keyed`.

    >>> one, two = (uniform((3, 2), torch.zeros(1), Keyed(keyed(0, torch.tensor(n)))) for n in ([4, 5, 6], [6, 4, 5]))
    >>> torch.equal(one, two[[1, 2, 0]])
    True
    """

    def __new__(cls, keys: Int[Tensor, " N"]) -> "Keyed":
        """A generator of the CPU."""
        return super().__new__(cls)

    def __init__(self, keys: Int[Tensor, " N"]) -> None:
        self.keys, self._calls = keys, 0
        self.manual_seed(int(keys.sum()) % 2**63)

    def bits(self, shape: Sequence[int], axis: int, device: torch.device) -> Int[Tensor, "..."]:
        """Independent 64 bits for each entry, other ones in each call: a hash of key, call and the entry's place.

        Args:
            shape: Shape of the result.
            axis: The axis of the data.
            device: Device of the result.
        """
        total = (self.keys + _signed(_gamma(0) * self._calls)).to(device)
        total = total.reshape(-1, *[1] * (len(shape) - 1 - axis))
        self._calls += 1
        for number, size in enumerate(shape):
            if number != axis:  # as a place counts by its axes, the length of an axis decides nothing
                places = torch.arange(size, device=device) * _gamma(1 + number)
                total = total + places.reshape(-1, *[1] * (len(shape) - 1 - number))
        return _mixed(total)


def keyed(seed: int, numbers: Int[Tensor, " N"]) -> Int[Tensor, " N"]:
    """Keys for :class:`Keyed`.

    Args:
        seed: A seed for all data.
        numbers: A number of each datum.
    """
    return _mixed(numbers * _gamma(0) + _mixed(torch.tensor([seed])))


def _signed(number: int) -> int:
    """The whole number of 64 bits with a sign that has the same bits."""
    return (number + 2**63) % 2**64 - 2**63


def _gamma(number: int) -> int:
    """Odd factors, small multiples of which have no small sums."""
    return _signed(pow(GOLDEN, number + 1, 2**64))


def _mixed(bits: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """Bits each of which depends on all of those."""
    for shift, factor in MIX:
        bits = bits ^ (bits >> shift).bitwise_and_(2 ** (64 - shift) - 1)
        bits *= _signed(factor)
    return bits ^ (bits >> 31).bitwise_and_(2**33 - 1)


def uniform(
    shape: Sequence[int], like: Tensor, generator: torch.Generator | None, axis: int = 0
) -> Float[Tensor, "..."]:
    """Random numbers between 0 and 1, of the type and on the device of another tensor.

    Args:
        shape: Shape of the result.
        like: Tensor of that type and device.
        generator: Source of random numbers.
        axis: The axis of the data, for a source of numbers of data.
    """
    if not isinstance(generator, Keyed):
        drawn = torch.rand(*shape, generator=generator, dtype=like.dtype, device=drawn_on(like, generator))
        return drawn.to(like.device)
    digits = 52 if like.dtype == torch.double else 23  # and a half, so that neither 0 nor 1 is drawn
    whole = (generator.bits(shape, axis, like.device) >> (64 - digits)) & (2**digits - 1)
    return whole.to(like.dtype).add_(0.5).mul_(2.0**-digits)


def normal(
    shape: Sequence[int], like: Tensor, generator: torch.Generator | None, axis: int = 0
) -> Float[Tensor, "..."]:
    """Draws of N(0, I), of the type and on the device of another tensor; see :func:`uniform`."""
    if isinstance(generator, Keyed):
        return uniform(shape, like, generator, axis).mul_(2).sub_(1).erfinv_().mul_(2**0.5)
    drawn = torch.randn(*shape, generator=generator, dtype=like.dtype, device=drawn_on(like, generator))
    return drawn.to(like.device)


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
