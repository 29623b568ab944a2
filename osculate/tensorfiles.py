"""Tensors on disk, as safetensors with a JSON header and a checksum: whole or absent, read without executing anything.

The checksum is the SHA-256 of the header and of every tensor with its name, type and shape. Files of version 0.1 have
none.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from osculate.files import written_aside

#: Name of the checksum in the metadata.
CHECKSUM = "osculate.sha256"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], key: str, header: Mapping[str, Any]) -> None:
    """Write tensors and a JSON header under a temporary name, and rename it."""
    ready = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    metadata = {key: json.dumps(header)}
    with written_aside(path) as aside:
        save_file(ready, aside, metadata={**metadata, CHECKSUM: digest(metadata, ready)})


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The metadata and the tensors of a safetensors file, on the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is truncated, no safetensors file, or its content is not that of its checksum.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file at {str(path)!r}.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, RuntimeError, TypeError, KeyError) as error:
        raise ValueError(f"{str(path)!r} is truncated or not a safetensors file ({error}).") from error
    expected = metadata.pop(CHECKSUM, None)
    ours = any(name.startswith("osculate") for name in metadata)
    if (expected is None and ours and len(metadata) > 1) or (
        expected is not None and expected != digest(metadata, tensors)
    ):
        raise ValueError(
            f"{str(path)!r} is damaged: its content is not that of its checksum. Use a copy, or make it again."
        )
    return metadata, tensors


def _flat(tensor: Tensor) -> Tensor:
    """The entries in a row; one number alone may otherwise keep a stride that its bytes cannot have."""
    whole = tensor.is_contiguous() and tensor.numel() != 1
    return (tensor if whole else tensor.clone(memory_format=torch.contiguous_format)).reshape(-1)


def digest(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of texts and tensors with their names."""
    total = hashlib.sha256()
    for name in sorted(metadata):
        total.update(json.dumps([name, metadata[name]]).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        total.update(_flat(tensor).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return total.hexdigest()


def header_of(path: Path, metadata: Mapping[str, str], key: str) -> dict[str, Any]:
    """The JSON header of a file.

    Raises:
        ValueError: it is no JSON object.
    """
    try:
        header = json.loads(metadata[key])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the header of {str(path)!r} is damaged ({error}). Make it again.") from error
    if not isinstance(header, dict):
        raise ValueError(f"the header of {str(path)!r} is damaged: it is no JSON object. Make it again.")
    return header


def network_tensors(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, tied ones once, buffers that a state dict leaves out included."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def fingerprint(tensor: Tensor) -> str:
    """A digest of a tensor's type, shape and entries, on any device."""
    return digest({}, {"": tensor.detach().cpu()})[:16]


def fill(module: nn.Module, stored: Mapping[str, Tensor], path: Path, kept: Collection[str] = ()) -> nn.Module:
    """Copy stored tensors into a module's parameters and buffers, in place.

    Buffers that a state dict leaves out may be missing in the file.

    Args:
        module: The module.
        stored: Tensors by name.
        path: Path of the file, for the error.
        kept: Names of parameters that the file does not hold, and that stay as they are.

    Raises:
        ValueError: names or shapes differ; the message names the first that does.
    """
    mine = network_tensors(module)
    optional = set(mine) - {name for name, _ in module.named_parameters()} - set(module.state_dict())
    aliases = set(module.state_dict())  # a state dict names tied parameters twice
    for name in [*mine, *stored]:
        here = tuple(mine[name].shape) if name in mine else None
        there = tuple(stored[name].shape) if name in stored else None
        excused = (there is None and (name in optional or name in kept)) or (here is None and name in aliases)
        if here != there and not excused:
            raise ValueError(
                f"{str(path)!r} belongs to another network: {name!r} has shape {there or 'none'} in the file and "
                f"{here or 'none'} in the model. Pass a module of the architecture that was saved."
            )
    with torch.no_grad():
        for name, tensor in mine.items():
            if name in stored:
                tensor.copy_(stored[name])
    return module
