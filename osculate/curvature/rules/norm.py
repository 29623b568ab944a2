"""Normalisation layers: a fixed or per-datum normalisation, then a scale and a shift for each feature or channel."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from osculate.curvature.rules._base import Bilinear, Call, Local, Pulled, entrywise, refusal, rows_of, squares_of


def _channels(input: Tensor) -> tuple[int, ...]:
    return (input.shape[1], *(1,) * (input.ndim - 2))


@dataclass(frozen=True)
class Normalised(Local):
    """y = (x − mean) / s over the last axis of length D, s its standard deviation, root mean square, or length.

    J_ij = (δ_ij − c − k y_i y_j) / s with c = 1/D where the mean is subtracted, else 0, and k = 1/D, or 1 for the
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


class Affine(Bilinear):
    """y = x ∘ w + b, scale and shift broadcast."""

    def forward(self, x: Tensor, w: Tensor | None, b: Tensor | None) -> tuple[Tensor, tuple]:
        y = x if w is None else x * w
        y = y if b is None else y + b
        return y, (x, w, b)

    def gradient(self, needed: Sequence[bool], g: Tensor, x: Tensor, w: Tensor | None, b: Tensor | None) -> Pulled:
        g_x = (g if w is None else g * w) if needed[0] else None
        g_w = (g * x).sum_to_size(w.shape) if w is not None and needed[1] else None
        return g_x, g_w, g.sum_to_size(b.shape) if b is not None and needed[2] else None


def _scale_and_shift(call: Call, x: Tensor, w: Tensor | None, b: Tensor | None, shape: tuple[int, ...]) -> Any:
    """The rule for a normalised x times w plus b, both broadcast in this shape."""
    if call.output is not None:
        return entrywise(call, (w, x, shape), (b, None, shape)) if x.ndim > len(shape) else None
    if w is None and b is None:
        return x
    return Affine()(x, *(None if t is None else t.reshape(shape) for t in (w, b)))


@rows_of(F.layer_norm)
@squares_of(F.layer_norm, torch.layer_norm)
def layer_norm(
    call: Call,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Any:
    """Normalisation over the last axes, then scale and shift."""
    shape = tuple(normalized_shape)
    if call.output is None:
        x = Normalised("deviation", eps)(input.flatten(-len(shape))).reshape(input.shape)
    else:
        x = F.layer_norm(input, shape, eps=eps)
    return _scale_and_shift(call, x, weight, bias, shape)


@rows_of(F.rms_norm)
@squares_of(F.rms_norm, torch.rms_norm)
def rms_norm(
    call: Call, input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Any:
    """Division by the root mean square of the last axes, then scale."""
    shape = tuple(normalized_shape)
    if call.output is None:
        eps = torch.finfo(input.dtype).eps if eps is None else eps
        x = Normalised("root mean square", eps)(input.flatten(-len(shape))).reshape(input.shape)
    else:
        x = F.rms_norm(input, shape, eps=eps)
    return _scale_and_shift(call, x, weight, None, shape)


@rows_of(F.group_norm)
@squares_of(F.group_norm, torch.group_norm)
def group_norm(
    call: Call,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Any:
    """Normalisation over groups of channels and all positions, then scale and shift of each channel."""
    if call.output is None:
        x = Normalised("deviation", eps)(input.reshape(len(input), num_groups, -1)).reshape(input.shape)
    else:
        x = F.group_norm(input, num_groups, eps=eps)
    return _scale_and_shift(call, x, weight, bias, _channels(input))


@rows_of(F.instance_norm)
@squares_of(F.instance_norm)
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
) -> Any:
    """Normalisation over the positions of each channel, or by running statistics."""
    if not use_input_stats:
        return batch_norm(call, input, running_mean, running_var, weight, bias, False, momentum, eps)
    if call.output is not None:
        x = F.instance_norm(input, eps=eps)
    elif running_mean is not None or running_var is not None:
        return NotImplemented  # training mode: it would change the statistics
    else:
        x = Normalised("deviation", eps)(input.flatten(2)).reshape(input.shape)
    return _scale_and_shift(call, x, weight, bias, _channels(input))


@rows_of(F.batch_norm)
@squares_of(F.batch_norm)
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
) -> Any:
    """Normalisation by running statistics, which are constants, then scale and shift of each channel."""
    shape = _channels(input)
    if call.output is not None:
        if training:
            return None
        x = F.batch_norm(input, running_mean, running_var, eps=eps)
        return _scale_and_shift(call, x, weight, bias, shape)
    if training or running_mean is None or running_var is None:
        raise refusal("batch_norm", "batch statistics let every output depend on all data")
    inverse = (running_var + eps).rsqrt()
    if not any(isinstance(t, Tensor) and t.requires_grad for t in (weight, bias)):
        scale = inverse if weight is None else inverse * weight
        shift = -running_mean * scale if bias is None else bias - running_mean * scale
        return _scale_and_shift(call, input, scale, shift, shape)
    x = _scale_and_shift(call, input, inverse, -running_mean * inverse, shape)
    return _scale_and_shift(call, x, weight, bias, shape)


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
