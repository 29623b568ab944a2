"""Parameters that scale or shift activations elementwise: PReLU slopes, layer scales, free biases, position tables."""

import torch
from torch import Tensor

from osculate.curvature.layers._base import Call, Use, elementwise, rule


@rule(torch.prelu)
def prelu(call: Call, input: Tensor, weight: Tensor) -> Use | None:
    """y = max(0, x) + w min(0, x), one slope for all or for each channel."""
    if input.ndim < 2:
        return None
    shape = (weight.numel(), *(1,) * (input.ndim - 2))
    return elementwise(call, (weight, input.clamp(max=0), shape))


@rule(torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)
def multiply(call: Call, input: Tensor, other: Tensor) -> Use | None:
    """y = w ∘ x with w broadcast over the batch."""
    parameter, factor = (input, other) if call.name(input) is not None else (other, input)
    return _broadcast(call, parameter, factor if isinstance(factor, Tensor) else None)


@rule(torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__)
def add(call: Call, input: Tensor, other: Tensor, *, alpha: float = 1) -> Use | None:
    """y = x + w with w broadcast over the batch."""
    parameter, rest = (input, other) if call.name(input) is not None else (other, input)
    if alpha != 1 or not isinstance(rest, Tensor):
        return None
    return _broadcast(call, parameter, torch.ones_like(call.output) if rest.ndim else None)


def _broadcast(call: Call, parameter: Tensor, factor: Tensor | None) -> Use | None:
    rows = call.output.ndim
    spare = parameter.ndim < rows or (parameter.ndim == rows and parameter.shape[0] == 1)
    if factor is None or rows < 1 or not spare or call.name(factor) is not None or factor.ndim < rows:
        return None
    shape = tuple(parameter.shape[1:] if parameter.ndim == rows else parameter.shape)
    return elementwise(call, (parameter, factor, shape))
