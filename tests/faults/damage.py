"""Files that were damaged by accident, and well-formed ones with a content that nobody should trust."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from osculate.tensorfiles import CHECKSUM, digest

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


def parts(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata without the checksum, and tensors."""
    with safe_open(path, framework="pt") as file:
        metadata = {name: value for name, value in file.metadata().items() if name != CHECKSUM}
        return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def forge(path: Path, metadata: dict[str, str], tensors: dict[str, Tensor]) -> None:
    """Write a file whose checksum is right."""
    save_file(tensors, path, metadata={**metadata, CHECKSUM: digest(metadata, tensors)})


def swapped_tensors(path: Path, draw: random.Random) -> None:
    """Two tensors have each other's values, with the old checksum."""
    with safe_open(path, framework="pt") as file:
        metadata, names = file.metadata(), list(file.keys())
        tensors = {name: file.get_tensor(name) for name in names}
    a, b = draw.sample(names, 2)
    tensors[a], tensors[b] = tensors[b], tensors[a]
    save_file(tensors, path, metadata=metadata)


#: Values that stand in a hostile header in place of another.
BAD: list[Any] = [
    None,
    -1,
    0,
    1e308,
    float("nan"),
    2**63,
    10**400,
    "x" * 1000,
    "os:system",
    "../../etc/passwd",
    [],
    {},
    [[]],
    {"tensor": "network.0.weight"},
    True,
]


def hostile(path: Path, draw: random.Random) -> None:
    """A well-formed file with a right checksum, in which one entry or one tensor is of another kind."""
    metadata, tensors = parts(path)
    (key,) = metadata
    header = json.loads(metadata[key])
    if draw.random() < 0.6:
        holder: Any = header
        while True:
            choice = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            if isinstance(holder[choice], dict | list) and holder[choice] and draw.random() < 0.7:
                holder = holder[choice]
                continue
            action = draw.random()
            if action < 0.7:
                holder[choice] = draw.choice(BAD)
            elif isinstance(holder, dict):
                del holder[choice]
            break
    else:
        name = draw.choice(list(tensors))
        old = tensors[name]
        tensors[name] = draw.choice(
            [
                old.new_zeros(0),
                old.reshape(-1)[:1].clone() if old.numel() else old,
                torch.full_like(old, 127),
                (old.double() * float("nan")).to(old.dtype) if old.is_floating_point() else -old - 1,
                torch.zeros(3, 5, 7),
                old.to(torch.int8),
            ]
        )
    forge(path, {key: json.dumps(header)}, {name: each.contiguous() for name, each in tensors.items()})
