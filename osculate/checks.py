"""Numbers and objects that a user gives, refused in one wording where they are of another kind."""

import math
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor


def require_whole(name: str, value: Any, least: int = 1) -> None:
    """Refuse what is no whole number, or too small a one.

    Raises:
        ValueError: either.

    >>> require_whole("samples", 2.5)
    Traceback (most recent call last):
    ...
    ValueError: samples must be a whole number of at least 1, got 2.5.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")


def require_positive(name: str, value: Any) -> None:
    """Refuse what is no number above zero.

    Raises:
        ValueError: it is none.

    >>> require_positive("the temperature", "1")
    Traceback (most recent call last):
    ...
    ValueError: the temperature must be positive and finite, got '1': give a number.
    """
    number = isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1)
    if not (number and math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be positive and finite, got {value!r}{'.' if number else ': give a number.'}")


def require_object(name: str, value: Any, kind: type) -> None:
    """Refuse what is no object of a class that can be made without arguments.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be an object such as {kind()!r}, got {value!r}.")


def require_generator(generator: Any) -> None:
    """Refuse what is neither a generator nor None.

    Raises:
        TypeError: it is another object.
    """
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator must be a torch.Generator, got {generator!r}: for a seed, pass "
            "torch.Generator().manual_seed(seed)."
        )
