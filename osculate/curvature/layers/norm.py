"""Normalisation layers: a fixed or per-datum normalisation, then a scale and a shift for each feature or channel."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from osculate.curvature.layers._base import Call, Use, elementwise, rule


@rule(F.layer_norm)
def layer_norm(
    call: Call,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Use | None:
    """Scale and shift of the normalised last axes."""
    shape = tuple(normalized_shape)
    if input.ndim <= len(shape):
        return None
    return elementwise(call, (weight, F.layer_norm(input, shape, eps=eps), shape), (bias, None, shape))


@rule(F.rms_norm)
def rms_norm(
    call: Call,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Use | None:
    """Scale of the root-mean-square normalised last axes."""
    shape = tuple(normalized_shape)
    if input.ndim <= len(shape):
        return None
    return elementwise(call, (weight, F.rms_norm(input, shape, eps=eps), shape))


@rule(F.group_norm)
def group_norm(
    call: Call,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Use | None:
    """Scale and shift of each channel."""
    shape = _channels(input)
    return elementwise(call, (weight, F.group_norm(input, num_groups, eps=eps), shape), (bias, None, shape))


@rule(F.instance_norm)
def instance_norm(
    call: Call,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Use | None:
    """Scale and shift of each channel."""
    mean, var = (None, None) if use_input_stats else (running_mean, running_var)
    normed = F.instance_norm(input, mean, var, use_input_stats=use_input_stats, eps=eps)
    shape = _channels(input)
    return elementwise(call, (weight, normed, shape), (bias, None, shape))


@rule(F.batch_norm)
def batch_norm(
    call: Call,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Use | None:
    """Scale and shift of each channel, with the running statistics as constants."""
    if training:
        return None
    normed = F.batch_norm(input, running_mean, running_var, eps=eps)
    shape = _channels(input)
    return elementwise(call, (weight, normed, shape), (bias, None, shape))


def _channels(input: Tensor) -> tuple[int, ...]:
    return (input.shape[1], *(1,) * (input.ndim - 2))
