"""Files that were damaged by accident."""

import random
from collections.abc import Callable
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

#: A function that damages a file in place.
Damage = Callable[[Path, random.Random], None]


def flipped(path: Path, draw: random.Random) -> None:
    """One to eight bits are others."""
    content = bytearray(path.read_bytes())
    for _ in range(draw.randint(1, 8)):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def zeroed(path: Path, draw: random.Random) -> None:
    """A run of bytes is zero, as after a crash of the system."""
    content = bytearray(path.read_bytes())
    start = draw.randrange(len(content))
    size = min(len(content) - start, draw.choice([1, 16, 512, len(content)]))
    content[start : start + size] = bytes(size)
    path.write_bytes(content)


def truncated(path: Path, draw: random.Random) -> None:
    """The end is missing."""
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content))])


def extended(path: Path, draw: random.Random) -> None:
    """There are bytes behind the end."""
    path.write_bytes(path.read_bytes() + draw.randbytes(draw.randint(1, 64)))


def swapped(path: Path, draw: random.Random) -> None:
    """Two stretches of equal length have changed places."""
    content = bytearray(path.read_bytes())
    size = draw.randint(1, max(1, len(content) // 8))
    a, b = (draw.randrange(len(content) - size + 1) for _ in range(2))
    first, second = bytes(content[a : a + size]), bytes(content[b : b + size])
    content[a : a + size], content[b : b + size] = second, first
    path.write_bytes(content)


#: By name.
ACCIDENTS: dict[str, Damage] = {each.__name__: each for each in (flipped, zeroed, truncated, extended, swapped)}


def swapped_tensors(path: Path, draw: random.Random) -> None:
    """Two tensors have each other's values, with the old checksum."""
    with safe_open(path, framework="pt") as file:
        metadata, names = file.metadata(), list(file.keys())
        tensors = {name: file.get_tensor(name) for name in names}
    a, b = draw.sample(names, 2)
    tensors[a], tensors[b] = tensors[b], tensors[a]
    save_file(tensors, path, metadata=metadata)
