"""Means, average pooling, interpolation, reductions to one number, and a scaled sum: squared coefficients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from osculate.curvature.rules._base import Call, Local, Pulled, squares_of
from osculate.curvature.rules.conv import Size, each_axis


@squares_of(torch.mean, Tensor.mean)
def mean(call: Call, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Each of n entries with coefficient 1/n."""
    y = call.operation(input, *args, **kwargs)
    return call.weigh(y, y.numel() / input.numel())


@squares_of(F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
def avg_pool(
    call: Call,
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Each entry of a window with one over its divisor, which differs at the border.

    The divisor is the ratio of the sum and the average of ones over the window. One axis is treated as two with a
    height of one, as torch has no sum for it.
    """
    dims = {F.avg_pool1d: 1, F.avg_pool2d: 2, F.avg_pool3d: 3}[call.operation]
    if dims == 1:
        k, s, p = (each_axis(size, 1) for size in (kernel_size, stride or kernel_size, padding))
        flat, settings = replace(call, operation=F.avg_pool2d), (ceil_mode, count_include_pad)
        return avg_pool(flat, input.unsqueeze(-2), (1, *k), (1, *s), (0, *p), *settings).squeeze(-2)

    def pooled(x: Tensor, divisor: int | None) -> Tensor:
        return call.operation(x, kernel_size, stride or kernel_size, padding, ceil_mode, count_include_pad, divisor)

    y = pooled(input, divisor_override)
    with torch.no_grad():
        ones = input.new_ones(1, 1, *input.shape[-dims:])
        weights = (pooled(ones, divisor_override) / pooled(ones, 1))[0, 0]
    return call.weigh(y, weights)


@squares_of(F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)
def adaptive_avg_pool(call: Call, input: Tensor, output_size: Any) -> Tensor:
    """Each entry of a window with one over its size, the product of its sides.

    A side follows from the averages of unit vectors along its axis: the squares of n coefficients 1/n add to 1/n.
    """
    dims = {F.adaptive_avg_pool1d: 1, F.adaptive_avg_pool2d: 2, F.adaptive_avg_pool3d: 3}[call.operation]
    y = call.operation(input, output_size)
    weights = input.new_ones(y.shape[-dims:])
    with torch.no_grad():
        for axis in range(dims):
            size, count = input.shape[axis - dims], y.shape[axis - dims]
            sides = torch.adaptive_avg_pool1d(torch.eye(size).to(input).unsqueeze(1), count).square().sum((0, 1))
            weights = weights * sides.reshape(-1, *(1,) * (dims - 1 - axis))
    return call.weigh(y, weights)


@dataclass(frozen=True)
class Resampled(Local):
    """y = (A_1 ⊗ A_2 ⊗ …) x over the last axes: each A squared and transposed in turn."""

    resample: Callable[[Tensor], Tensor]
    matrices: tuple[Tensor, ...]

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        return self.resample(x), (x.new_zeros(()).expand(x.shape),)

    def pull(self, needed: Sequence[bool], m: Tensor, *_: Any) -> Pulled:
        for axis, matrix in enumerate(self.matrices):
            moved = m.movedim(axis - len(self.matrices), 0)
            pulled = torch.sparse.mm(matrix, moved.reshape(len(moved), -1))
            m = pulled.reshape(-1, *moved.shape[1:]).movedim(0, axis - len(self.matrices))
        return (m,)

    def gradient(self, needed: Sequence[bool], g: Tensor, zeros: Tensor) -> Pulled:
        with torch.enable_grad():
            x = zeros.detach().requires_grad_()
            return torch.autograd.grad(self.resample(x), x, g)


@squares_of(F.interpolate)
def interpolate(
    call: Call,
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """Linear and cubic interpolation act on each axis separately, by a matrix found from unit vectors."""
    if mode not in ("linear", "bilinear", "bicubic", "trilinear"):
        return NotImplemented  # selections, and averages with a separate rule
    dims = input.ndim - 2

    def resample(x: Tensor, only: int | None = None) -> Tensor:
        sizes, scales = (
            None if given is None else tuple(given) if isinstance(given, Sequence) else (given,) * dims
            for given in (size, scale_factor)
        )
        if only is not None:  # the other axes have length two, and stay so
            sizes = None if sizes is None else tuple(s if i == only else 2 for i, s in enumerate(sizes))
            scales = None if scales is None else tuple(s if i == only else 1.0 for i, s in enumerate(scales))
        return F.interpolate(x, sizes, scales, mode, align_corners, recompute_scale_factor, antialias)

    matrices = []
    with torch.no_grad():
        for axis, count in enumerate(input.shape[2:]):
            units = torch.eye(count).to(input).reshape(count, 1, *(count if i == axis else 1 for i in range(dims)))
            units = units.expand(-1, -1, *(count if i == axis else 2 for i in range(dims))).contiguous()
            row = resample(units, axis).movedim(2 + axis, 1).flatten(2)[..., 0]  # the same along the other axes
            matrices.append(row.square().to_sparse())
    return Resampled(resample, tuple(matrices))(input)


@squares_of(
    torch.logsumexp, Tensor.logsumexp, torch.var, Tensor.var, torch.std, Tensor.std, torch.prod, Tensor.prod,
    torch.linalg.vector_norm, torch.amax, Tensor.amax, torch.amin, Tensor.amin,
)  # fmt: skip
def reduction(call: Call, input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """One output for every input: its derivative, from a backward pass of ones, times its share of m.

    Of k inputs that tie for an extreme, each has the derivative 1/k.
    """
    y = call.operation(input, *args, **kwargs)
    node: Any = y.grad_fn
    if [edge[0] for edge in node.next_functions if edge[0] is not None] != [get_gradient_edge(input).node]:
        return NotImplemented

    def pull(gradients: Sequence[Tensor | None], cotangents: Sequence[Tensor]) -> Pulled:
        slope = node(torch.ones_like(cotangents[0]))
        slope = slope if isinstance(slope, Tensor) else slope[0]
        return (None if gradients[0] is None else gradients[0] * slope, *gradients[1:])

    call.after(node, pull)
    return y


@squares_of(torch.max, Tensor.max, torch.min, Tensor.min, torch.median, Tensor.median)
def of_all(call: Call, input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The extreme or median of all entries; along an axis it is a selection, of two tensors it is elementwise."""
    return NotImplemented if args or kwargs else reduction(call, input)


@squares_of(torch.index_add, Tensor.index_add, Tensor.index_add_)
def index_add(call: Call, input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: int | float = 1) -> Any:
    """The source with a factor; without one it is a selection."""
    if alpha == 1:
        return NotImplemented
    scaled = alpha * source
    return call.operation(input, dim, index, call.weigh(scaled, float(alpha)) if scaled.requires_grad else scaled)
