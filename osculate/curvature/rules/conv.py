"""Convolutions in one, two and three dimensions, and their transposes: one linear map at every output position."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from osculate.curvature.rules._base import Bilinear, Call, Pulled, affine, rows_of, squares_of

Size = int | Sequence[int]


@rows_of(torch.conv1d, torch.conv2d, torch.conv3d)
@squares_of(torch.conv1d, torch.conv2d, torch.conv3d)
def conv(
    call: Call,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Any:
    """Patches of the input times the kernel.

    [grosse2016] writes a convolution as this linear map; groups are independent blocks of it.
    """
    dims, kernel = weight.ndim - 2, weight.shape[2:]
    steps, holes = each_axis(stride, dims), each_axis(dilation, dims)
    if isinstance(padding, str):
        total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(holes, kernel, strict=True)]
        pads = [(t // 2, t - t // 2) for t in total]
    else:
        pads = [(p, p) for p in each_axis(padding, dims)]
    if call.output is None:
        if isinstance(padding, str):  # it may be asymmetric, and is added beforehand
            input, pads = _pad(input, pads), [(0, 0)] * dims
        map = Convolution(steps, [p for p, _ in pads], holes, False, [0] * dims, groups)
        return map.of(input, weight, bias)
    if input.ndim != weight.ndim or call.source(input) is not None:
        return None
    return affine(
        call,
        weight,
        bias,
        inputs=lambda ones: _patches(_pad(input, pads), kernel, steps, holes, groups, ones),
        outputs=lambda g: _positions_last_to_rows(g, groups),
        matrix=lambda w: w.reshape(groups, w.shape[0] // groups, -1),
    )


@rows_of(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)
@squares_of(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)
def conv_transpose(
    call: Call,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Any:
    """A convolution of the flipped kernel with the input, zeros inserted between its entries."""
    dims, kernel = weight.ndim - 2, weight.shape[2:]
    steps, pads, extras, holes = (each_axis(size, dims) for size in (stride, padding, output_padding, dilation))
    if call.output is None:
        return Convolution(steps, pads, holes, True, extras, groups).of(input, weight, bias)
    if input.ndim != weight.ndim or call.source(input) is not None:
        return None
    reach = [d * (k - 1) - p for d, k, p in zip(holes, kernel, pads, strict=True)]
    around = [(r, r + extra) for r, extra in zip(reach, extras, strict=True)]

    def matrix(w: Tensor) -> Tensor:
        flipped = w.flip(tuple(range(2, w.ndim)))
        grouped = flipped.reshape(groups, w.shape[0] // groups, *w.shape[1:])  # (G, I, O, *kernel)
        return grouped.transpose(1, 2).flatten(2)

    return affine(
        call,
        weight,
        bias,
        inputs=lambda ones: _patches(_pad(_spread_out(input, steps), around), kernel, [1] * dims, holes, groups, ones),
        outputs=lambda g: _positions_last_to_rows(g, groups),
        matrix=matrix,
    )


def each_axis(size: Size, dims: int) -> list[int]:
    """A size for each axis."""
    sizes = [size] if isinstance(size, int) else list(size)
    return sizes * dims if len(sizes) == 1 else sizes


def _pad(x: Tensor, pads: list[tuple[int, int]]) -> Tensor:
    flat = [p for pair in reversed(pads) for p in pair]
    return F.pad(x, flat) if any(flat) else x


def _spread_out(x: Tensor, steps: list[int]) -> Tensor:
    """Insert zeros between the entries, so that a stride-1 convolution equals the transposed one."""
    if all(step == 1 for step in steps):
        return x
    sizes = [(size - 1) * step + 1 for size, step in zip(x.shape[2:], steps, strict=True)]
    wide = x.new_zeros(*x.shape[:2], *sizes)
    every = tuple(slice(None, None, step) for step in steps)
    wide[(slice(None), slice(None), *every)] = x
    return wide


def _patches(x: Tensor, kernel: Sequence[int], steps: list[int], holes: list[int], groups: int, ones: bool) -> Tensor:
    """The windows of a padded input: (N, R, G, I) with I running over channels of a group and kernel positions.

    With ``ones`` a constant one follows them; windows are copied only once.
    """
    n, channels = x.shape[:2]
    for axis, (k, step, hole) in enumerate(zip(kernel, steps, holes, strict=True), start=2):
        x = x.unfold(axis, hole * (k - 1) + 1, step)[..., ::hole]
    dims = len(kernel)
    x = x.reshape(n, groups, channels // groups, *x.shape[2:])  # (N, G, C/G, *positions, *kernel)
    windows = x.permute(1, 2, *range(3 + dims, 3 + 2 * dims), 0, *range(3, 3 + dims))
    window = windows.shape[1 : 2 + dims]  # (C/G, *kernel), before N and the positions: long runs to copy
    features = torch.Size(window).numel()
    result = x.new_empty(groups, features + ones, *windows.shape[2 + dims :])
    result[:, :features].unflatten(1, window).copy_(windows)
    if ones:
        result[:, features] = 1
    return result.flatten(3).permute(2, 3, 0, 1)


def _positions_last_to_rows(g: Tensor, groups: int) -> Tensor:
    """(V, N, G·O, *positions) to (V, N, R, G, O)."""
    rows = g.flatten(3).transpose(2, 3)
    return rows.reshape(*rows.shape[:3], groups, -1)


@dataclass(frozen=True)
class Convolution(Bilinear):
    """A convolution or a transposed one: its own backward with the kernel, or the input, squared."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    transposed: bool
    output_padding: list[int]
    groups: int

    @property
    def _settings(self) -> tuple:
        return self.stride, self.padding, self.dilation, self.transposed, self.output_padding, self.groups

    def of(self, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        """The output for a batch, or for one datum without its axis."""
        return self(x, w, b) if x.ndim == w.ndim else self(x.unsqueeze(0), w, b).squeeze(0)

    def forward(self, x: Tensor, w: Tensor, b: Tensor | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        return torch.convolution(x, w, b, *self._settings), (x, w)

    def gradient(self, needed: Sequence[bool], g: Tensor, x: Tensor, w: Tensor) -> Pulled:
        pulled = torch.ops.aten.convolution_backward(g, x, w, [g.shape[1]], *self._settings, list(needed))
        return tuple(each if need else None for each, need in zip(pulled, needed, strict=True))
