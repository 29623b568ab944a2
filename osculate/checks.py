"""Checks of numbers, objects and installed libraries, with one wording of their errors."""

import math
from importlib import import_module
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

#: The extra of pyproject.toml that installs each optional library, by the name under which it is imported.
EXTRAS = {
    "PIL": "data",
    "astra": "astra",
    "botorch": "botorch",
    "docstring_parser": "cli",
    "fastapi": "serve",
    "jinja2": "cli",
    "jsonargparse": "cli",
    "lightning": "train",
    "matplotlib": "plots",
    "pandas": "tables",
    "pooch": "data",
    "pyarrow": "tables",
    "pyproximal": "inverse",
    "rich": "cli",
    "shtab": "cli",
    "sklearn": "data",
    "tensorboard": "tensorboard",
    "torchmetrics": "metrics",
    "transformers": "huggingface",
    "uvicorn": "serve",
    "yaml": "cli",
    "zuko": "flows",
}


def require_library(name: str, purpose: str) -> None:
    """Import an optional library, or name the extra that installs it.

    Args:
        name: Name under which it is imported.
        purpose: Plural noun that begins the error: its uses.

    Raises:
        ImportError: it is not installed.

    >>> require_library("matplotlib", "figures")
    """
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # it is installed, and broken
            raise
        raise ImportError(
            f"{purpose} need {name}, which is not installed: pip install 'osculate[{EXTRAS[name]}]'"
        ) from error


def require_whole(name: str, value: Any, least: int = 1) -> None:
    """Raise ValueError unless ``value`` is a whole number of at least ``least``.

    >>> require_whole("samples", 2.5)
    Traceback (most recent call last):
    ...
    ValueError: samples must be a whole number of at least 1, got 2.5.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")


def require_positive(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a positive, finite number.

    >>> require_positive("the temperature", "1")
    Traceback (most recent call last):
    ...
    ValueError: the temperature must be positive and finite, got '1': give a number.
    """
    number = isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1)
    if not (number and math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be positive and finite, got {value!r}{'.' if number else ': give a number.'}")


def require_object(name: str, value: Any, kind: type) -> None:
    """Raise TypeError unless ``value`` is an instance of a class that has a constructor without arguments."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be an object such as {kind()!r}, got {value!r}.")


def require_generator(generator: Any) -> None:
    """Raise TypeError unless ``generator`` is a torch.Generator or None."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator must be a torch.Generator, got {generator!r}: for a seed, pass "
            "torch.Generator().manual_seed(seed)."
        )
