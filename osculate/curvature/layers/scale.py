"""Parameters that join activations one by one: slopes, layer scales, free biases, position tables, class tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor

from osculate.curvature.layers._base import Call, Use, dense, elementwise, rule, sum_to


@rule(torch.prelu)
def prelu(call: Call, input: Tensor, weight: Tensor) -> Use | None:
    """y = max(0, x) + w min(0, x), one slope for all or for each channel."""
    if input.ndim < 2:
        return None
    shape = (weight.numel(), *(1,) * (input.ndim - 2))
    return elementwise(call, (weight, input.clamp(max=0), shape))


@rule(torch.mul, Tensor.mul)
def multiply(call: Call, input: Tensor, other: Tensor) -> Use | None:
    """y = w ∘ x with w broadcast over the batch."""
    parameter, factor = (input, other) if call.source(input) is not None else (other, input)
    return _broadcast(call, parameter, factor)


@rule(torch.add, Tensor.add, Tensor.add_)
def add(call: Call, input: Tensor, other: Tensor, *, alpha: float = 1) -> Use | None:
    """y = x + w with w broadcast over the batch."""
    parameter, rest = (input, other) if call.source(input) is not None else (other, input)
    if alpha != 1 or not isinstance(rest, Tensor) or not rest.ndim:
        return None
    return _broadcast(call, parameter, torch.ones_like(call.output))


@rule(torch.cat, torch.concat, torch.concatenate)
def cat(call: Call, tensors: Sequence[Tensor], dim: int = 0) -> Use | None:
    """Parameters put beside activations, shared by all data: class tokens, learned keys and values."""
    axis = dim % call.output.ndim
    sources, places, start = [], [], 0
    for tensor in tensors:
        stop = start + tensor.shape[axis]
        if (source := call.source(tensor)) is not None:
            shared = source.for_each_datum(tensor)
            if axis == 0 or shared is None or len(tensor) != len(call.output):
                return None
            sources.append(shared)
            places.append((start, stop))
        start = stop

    def rows(columns: Tensor) -> list[Tensor]:
        return [columns.narrow(axis + 1, start, stop - start).flatten(2) for start, stop in places]

    return dense(sources, rows)


def _broadcast(call: Call, parameter: Tensor, factor: object) -> Use | None:
    source, axes = call.source(parameter), call.output.ndim
    if source is None or axes < 1 or not isinstance(factor, Tensor) or factor.ndim < axes:
        return None
    if call.source(factor) is not None or parameter.ndim > axes:
        return None
    shared = source if parameter.ndim < axes else source.for_each_datum(parameter)
    shape = tuple(parameter.shape if parameter.ndim < axes else parameter.shape[1:])
    if shared is None:
        return None
    return dense([shared], lambda columns: [sum_to(columns * factor.detach(), shape)])
