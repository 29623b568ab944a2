"""Normalisation layers: a fixed or per-datum normalisation, then a scale and a shift for each feature or channel."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from osculate.curvature.rules._base import Call, Local, Pulled, Use, entrywise, refusal, rows_of, squares_of


@rows_of(F.layer_norm)
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
    return entrywise(call, (weight, F.layer_norm(input, shape, eps=eps), shape), (bias, None, shape))


@rows_of(F.rms_norm)
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
    return entrywise(call, (weight, F.rms_norm(input, shape, eps=eps), shape))


@rows_of(F.group_norm)
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
    return entrywise(call, (weight, F.group_norm(input, num_groups, eps=eps), shape), (bias, None, shape))


@rows_of(F.instance_norm)
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
    return entrywise(call, (weight, normed, shape), (bias, None, shape))


@rows_of(F.batch_norm)
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
    return entrywise(call, (weight, normed, shape), (bias, None, shape))


def _channels(input: Tensor) -> tuple[int, ...]:
    return (input.shape[1], *(1,) * (input.ndim - 2))


@dataclass(frozen=True)
class Normalised(Local):
    """y = (x − mean) / s over the last axis of length D, s its standard deviation, root mean square, or length.

    J_ij = (δ_ij − c − k y_i y_j) / s with c = 1/D where the mean is taken off, else 0, and k = 1/D, or 1 for the
    length (0 where ``eps`` bounds it).
    """

    kind: str
    eps: float

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        if self.kind == "length":
            length = x.square().sum(-1, keepdim=True).sqrt()
            inverse, k = length.clamp(min=self.eps).reciprocal(), (length > self.eps).to(x)
            y = x * inverse
        else:
            x = x - x.mean(-1, keepdim=True) if self.kind == "deviation" else x
            inverse, k = (x.square().mean(-1, keepdim=True) + self.eps).rsqrt(), x.new_tensor(1 / x.shape[-1])
            y = x * inverse
        return y, (y, inverse, k)

    def pull(self, needed: Sequence[bool], m: Tensor, y: Tensor, inverse: Tensor, k: Tensor) -> Pulled:
        c, y2 = (1 / y.shape[-1] if self.kind == "deviation" else 0.0), y.square()
        result = m * (1 - 2 * c - 2 * k * y2) + k.square() * y2 * (m * y2).sum(-1, keepdim=True)
        if c:
            result += c**2 * m.sum(-1, keepdim=True) + 2 * c * k * y * (m * y).sum(-1, keepdim=True)
        return (result * inverse.square(),)

    def gradient(self, needed: Sequence[bool], g: Tensor, y: Tensor, inverse: Tensor, k: Tensor) -> Pulled:
        centred = g - g.mean(-1, keepdim=True) if self.kind == "deviation" else g
        return ((centred - k * y * (g * y).sum(-1, keepdim=True)) * inverse,)


class Affine(Local):
    """y = x ∘ w + b, scale and shift broadcast."""

    def forward(self, x: Tensor, w: Tensor | None, b: Tensor | None) -> tuple[Tensor, tuple]:
        y = x if w is None else x * w
        y = y if b is None else y + b
        return y, (x, w, b)

    def pull(self, needed: Sequence[bool], m: Tensor, x: Tensor, w: Tensor | None, b: Tensor | None) -> Pulled:
        return self.gradient(needed, m, x.square() if needed[1] else x, w if w is None else w.square(), b)

    def gradient(self, needed: Sequence[bool], g: Tensor, x: Tensor, w: Tensor | None, b: Tensor | None) -> Pulled:
        g_x = (g if w is None else g * w) if needed[0] else None
        g_w = (g * x).sum_to_size(w.shape) if w is not None and needed[1] else None
        return g_x, g_w, g.sum_to_size(b.shape) if b is not None and needed[2] else None


def _scaled(x: Tensor, w: Tensor | None, b: Tensor | None, shape: Sequence[int]) -> Tensor:
    if w is None and b is None:
        return x
    return Affine()(x, *(None if t is None else t.reshape(shape) for t in (w, b)))


@squares_of(F.layer_norm, torch.layer_norm)
def layer_norm_squares(
    call: Call,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    """Normalisation over the last axes, then scale and shift."""
    shape = tuple(normalized_shape)
    x = Normalised("deviation", eps)(input.flatten(-len(shape))).reshape(input.shape)
    return _scaled(x, weight, bias, shape)


@squares_of(F.rms_norm, torch.rms_norm)
def rms_norm_squares(
    call: Call, input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Division by the root mean square of the last axes, then scale."""
    shape = tuple(normalized_shape)
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    x = Normalised("root mean square", eps)(input.flatten(-len(shape))).reshape(input.shape)
    return _scaled(x, weight, None, shape)


@squares_of(F.group_norm, torch.group_norm)
def group_norm_squares(
    call: Call,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    """Normalisation over groups of channels and all positions, then scale and shift of each channel."""
    x = Normalised("deviation", eps)(input.reshape(len(input), num_groups, -1)).reshape(input.shape)
    return _scaled(x, weight, bias, _channels(input))


@squares_of(F.instance_norm)
def instance_norm_squares(
    call: Call,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Normalisation over the positions of each channel, or by running statistics."""
    if not use_input_stats:
        return batch_norm_squares(call, input, running_mean, running_var, weight, bias, False, momentum, eps)
    if running_mean is not None or running_var is not None:
        return NotImplemented  # training mode: it would change the statistics
    x = Normalised("deviation", eps)(input.flatten(2)).reshape(input.shape)
    return _scaled(x, weight, bias, _channels(input))


@squares_of(F.batch_norm)
def batch_norm_squares(
    call: Call,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Constant statistics, then scale and shift of each channel."""
    if training or running_mean is None or running_var is None:
        raise refusal("batch_norm", "batch statistics let every output depend on all data")
    inverse = (running_var + eps).rsqrt()
    if not any(isinstance(t, Tensor) and t.requires_grad for t in (weight, bias)):
        scale = inverse if weight is None else inverse * weight
        shift = -running_mean * scale if bias is None else bias - running_mean * scale
        return _scaled(input, scale, shift, _channels(input))
    x = _scaled(input, inverse, -running_mean * inverse, _channels(input))
    return _scaled(x, weight, bias, _channels(input))


@squares_of(F.normalize)
def normalize(
    call: Call, input: Tensor, p: int | float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Any:
    """Division by the Euclidean length along an axis."""
    if p != 2 or not isinstance(dim, int) or out is not None:
        return NotImplemented
    return Normalised("length", eps)(input.movedim(dim, -1)).movedim(-1, dim)


@squares_of(torch._weight_norm)
def weight_norm(call: Call, v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """g v / ‖v‖ for each slice along an axis, or as a whole (dim = −1)."""
    if dim == -1:
        unit = Normalised("length", 0.0)(v.reshape(-1)).reshape(v.shape)
    else:
        rows = v.movedim(dim, 0)
        unit = Normalised("length", 0.0)(rows.flatten(1)).reshape(rows.shape).movedim(0, dim)
    return Affine()(unit, g, None)
