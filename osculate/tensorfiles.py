"""Tensors on disk, as safetensors with a JSON header: written aside and renamed, read without executing anything."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from osculate.files import written_aside


def write_tensors(path: Path, tensors: Mapping[str, Tensor], key: str, header: Mapping[str, Any]) -> None:
    """Write tensors and a JSON header under a temporary name, and rename it."""
    ready = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with written_aside(path) as aside:
        save_file(ready, aside, metadata={key: json.dumps(header)})


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The metadata and the tensors of a safetensors file, on the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is truncated, or no safetensors file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file at {str(path)!r}.")
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{str(path)!r} is truncated or not a safetensors file ({error}).") from error


def network_tensors(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, tied ones once, buffers that a state dict leaves out included."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def fill(module: nn.Module, stored: Mapping[str, Tensor], path: Path) -> nn.Module:
    """Copy stored tensors into a module's parameters and buffers, in place.

    Buffers that a state dict leaves out may be missing in the file.

    Raises:
        ValueError: names or shapes differ; the message names the first that does.
    """
    mine = network_tensors(module)
    optional = set(mine) - {name for name, _ in module.named_parameters()} - set(module.state_dict())
    aliases = set(module.state_dict())  # a state dict names tied parameters twice
    for name in [*mine, *stored]:
        here = tuple(mine[name].shape) if name in mine else None
        there = tuple(stored[name].shape) if name in stored else None
        excused = (there is None and name in optional) or (here is None and name in aliases)
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
