"""Tensors, where plots take arrays."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

T = TypeVar("T")

#: Numbers along a line.
Values = Sequence[float | int] | np.ndarray


def arrays(draw: Callable[..., T]) -> Callable[..., T]:
    """Decorate a plot: tensors among its arguments, also within mappings and tuples, become arrays on the CPU.

    >>> arrays(lambda rows: {name: type(row).__name__ for name, row in rows.items()})({"a": torch.ones(2)})
    {'a': 'ndarray'}
    """

    @wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> T:
        return draw(*map(_array, args), **{name: _array(value) for name, value in kwargs.items()})

    return drawn


def _array(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, Mapping):
        return {name: _array(part) for name, part in value.items()}
    if type(value) in (tuple, list):
        return type(value)(map(_array, value))
    return value
