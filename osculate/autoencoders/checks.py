"""Checks of inputs, and of numbers of draws."""

from typing import Any

import torch
from torch import Tensor

#: Meanings of the arguments that must be at least 1.
COUNTED = {
    "samples": "sample",
    "codes": "code for each network",
    "batch_size": "input at a time",
    "n": "image",
    "places": "image along each side",
}


def require_inputs(x: Any) -> None:
    """Check that ``x`` is a tensor (N, …) of finite floating-point values.

    Raises:
        TypeError: not a tensor, or not of a floating type.
        ValueError: no batch axis, no inputs, or NaN or infinite values.
    """
    require_floats(x)
    if x.ndim < 2:
        raise ValueError(f"the inputs have shape {tuple(x.shape)}: the first axis counts them, so pass x.unsqueeze(0).")
    if not len(x):
        raise ValueError("there are no inputs: pass a tensor with at least one row.")
    if not bool(torch.isfinite(x).all()):
        raise ValueError("the inputs contain NaN or infinite values; impute them with osc.tasks.imputation.")


def require_floats(x: Any) -> None:
    """Raise TypeError unless ``x`` is a tensor of a floating type."""
    if not isinstance(x, Tensor):
        raise TypeError(f"the inputs are a {type(x).__name__}: pass a tensor, such as torch.from_numpy(x).")
    if not x.is_floating_point():
        raise TypeError(
            f"the inputs are of {x.dtype}, and networks take floating-point values: pass x.float(), divided by 255 if "
            "the network expects values up to 1."
        )


def require_some(**numbers: int | None) -> None:
    """Raise ValueError if a named number is given and less than 1."""
    for name, value in numbers.items():
        if value is not None and value < 1:
            raise ValueError(f"at least one {COUNTED[name]} is needed, got {name}={value}.")
