"""Linear layers, convolutions and products of two tensors: the other factor squared."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from osculate.curvature.squared._base import Call, Local, Pulled, rewrite, rule
from osculate.curvature.squared.normalisations import Softmax

Size = int | Sequence[int]


class Linear(Local):
    """y = x Wᵀ + b: m (W ∘ W) for x, mᵀ (x ∘ x) for W."""

    def forward(self, x: Tensor, w: Tensor, b: Tensor | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        return F.linear(x, w, b), (x, w)

    def pull(self, needed: Sequence[bool], m: Tensor, x: Tensor, w: Tensor) -> Pulled:
        return self.gradient(needed, m, x.square() if needed[1] else x, w.square() if needed[0] else w)

    def gradient(self, needed: Sequence[bool], g: Tensor, x: Tensor, w: Tensor) -> Pulled:
        flat = g.reshape(-1, g.shape[-1])
        g_x = g @ w if needed[0] else None
        g_w = flat.mT @ x.reshape(-1, x.shape[-1]) if needed[1] else None
        return g_x, g_w, flat.sum(0) if needed[2] else None


@dataclass(frozen=True)
class Product(Local):
    """y = scale · a b over the last two axes, the others broadcast."""

    scale: float = 1.0

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y = a @ b
        return y if self.scale == 1 else y * self.scale, (a, b)

    def pull(self, needed: Sequence[bool], m: Tensor, a: Tensor, b: Tensor) -> Pulled:
        squares = (a.square() if needed[1] else a, b.square() if needed[0] else b)
        return Product(self.scale**2).gradient(needed, m, *squares)

    def gradient(self, needed: Sequence[bool], g: Tensor, a: Tensor, b: Tensor) -> Pulled:
        g = g if self.scale == 1 else g * self.scale
        g_a = (g @ b.mT).sum_to_size(a.shape) if needed[0] else None
        return g_a, (a.mT @ g).sum_to_size(b.shape) if needed[1] else None


@dataclass(frozen=True)
class Convolution(Local):
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

    def forward(self, x: Tensor, w: Tensor, b: Tensor | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        return torch.convolution(x, w, b, *self._settings), (x, w)

    def pull(self, needed: Sequence[bool], m: Tensor, x: Tensor, w: Tensor) -> Pulled:
        return self.gradient(needed, m, x.square() if needed[1] else x, w.square() if needed[0] else w)

    def gradient(self, needed: Sequence[bool], g: Tensor, x: Tensor, w: Tensor) -> Pulled:
        pulled = torch.ops.aten.convolution_backward(g, x, w, [g.shape[1]], *self._settings, list(needed))
        return tuple(each if need else None for each, need in zip(pulled, needed, strict=True))


@rule(F.linear)
def linear(call: Call, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear layer on vectors, sequences, or any leading axes."""
    w = weight if weight.ndim == 2 else weight.unsqueeze(0)
    y = Linear()(input, w, bias if bias is None else bias.reshape(-1))
    return y if weight.ndim == 2 else y.squeeze(-1)


@rule(torch.conv1d, torch.conv2d, torch.conv3d)
def conv(
    call: Call,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """A convolution; an uneven "same" padding is put on beforehand."""
    dims = weight.ndim - 2
    holes, pads = _each(dilation, dims), [0] * dims
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(holes, weight.shape[2:], strict=True)]
        input = F.pad(input, [p for t in reversed(totals) for p in (t // 2, t - t // 2)])
    elif not isinstance(padding, str):
        pads = _each(padding, dims)
    return _convolve(Convolution(_each(stride, dims), pads, holes, False, [0] * dims, groups), input, weight, bias)


@rule(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)
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
) -> Tensor:
    """A transposed convolution."""
    stride, padding, output_padding, dilation = (
        _each(size, weight.ndim - 2) for size in (stride, padding, output_padding, dilation)
    )
    return _convolve(Convolution(stride, padding, dilation, True, output_padding, groups), input, weight, bias)


def _each(size: Size, dims: int) -> list[int]:
    sizes = [size] if isinstance(size, int) else list(size)
    return sizes * dims if len(sizes) == 1 else sizes


def _convolve(map: Convolution, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    return map(x, w, b) if x.ndim == w.ndim else map(x.unsqueeze(0), w, b).squeeze(0)


@rule(torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm, torch.bmm, Tensor.bmm, torch.mv, Tensor.mv)
def matmul(call: Call, input: Tensor, other: Tensor) -> Tensor:
    """A product of matrices, or of their batches; a matrix that all data share counts as a linear layer."""
    a = input.unsqueeze(0) if input.ndim == 1 else input
    b = other.unsqueeze(-1) if other.ndim == 1 else other
    if b.ndim == 2:
        y = Linear()(a, b.mT, None)
    elif a.ndim == 2:
        y = Linear()(b.mT, a, None).mT
    else:
        y = Product()(a, b)
    y = y.squeeze(-2) if input.ndim == 1 else y
    return y.squeeze(-1) if other.ndim == 1 else y


@rewrite(torch.addmm, Tensor.addmm, torch.baddbmm, Tensor.baddbmm, torch.addmv, Tensor.addmv)
def add_product(input: Tensor, a: Tensor, b: Tensor, *, beta: int | float = 1, alpha: int | float = 1) -> Tensor:
    """β c + α a b."""
    product = a @ b if alpha == 1 else alpha * (a @ b)
    if beta == 0:
        return product
    return product + (input if beta == 1 else beta * input)


@rewrite(torch.dot, Tensor.dot, torch.vdot, Tensor.vdot)
def dot(input: Tensor, other: Tensor) -> Tensor:
    """Σ_i a_i b_i."""
    return (input * other).sum()


@rewrite(torch.outer, Tensor.outer, torch.ger, Tensor.ger)
def outer(input: Tensor, other: Tensor) -> Tensor:
    """a_i b_j."""
    return input.unsqueeze(-1) * other


@rule(torch.einsum, torch._VF.einsum)  # type: ignore[attr-defined]
def einsum(call: Call, equation: Any, *operands: Any, **_: Any) -> Any:
    """Products of two operands at a time, from left to right, as products of batches of matrices."""
    tensors = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], tuple | list) else list(operands)
    if not isinstance(equation, str) or "..." in equation or len(tensors) < 2:
        return NotImplemented
    left, arrow, out = equation.replace(" ", "").partition("->")
    labels = left.split(",")
    if not arrow:
        out = "".join(sorted(letter for letter in set(left) - {","} if left.count(letter) == 1))
    sizes = {
        (letter, size)
        for word, t in zip(labels, tensors, strict=True)
        for letter, size in zip(word, t.shape, strict=True)
    }
    if any(len(set(word)) < len(word) for word in labels) or len(sizes) > len({letter for letter, _ in sizes}):
        return NotImplemented  # diagonals, and axes of length one that are stretched
    word, total = labels[0], tensors[0]
    for number in range(1, len(tensors)):
        later = set(out).union(*labels[number + 1 :])
        word, total = _contract(word, total, labels[number], tensors[number], later)
    if len(tensors) and set(word) - set(out):
        total = total.sum([i for i, letter in enumerate(word) if letter not in out])
        word = "".join(letter for letter in word if letter in out)
    return total.permute([word.index(letter) for letter in out])


def _contract(word_a: str, a: Tensor, word_b: str, b: Tensor, later: set[str]) -> tuple[str, Tensor]:
    """One product over the letters that both have and nobody needs later; what only one has is summed out first."""
    word_a, a = _without(word_a, a, set(word_a) - set(word_b) - later)
    word_b, b = _without(word_b, b, set(word_b) - set(word_a) - later)
    batch = [letter for letter in word_a if letter in word_b and letter in later]
    inner = [letter for letter in word_a if letter in word_b and letter not in later]
    rows = [letter for letter in word_a if letter not in word_b]
    columns = [letter for letter in word_b if letter not in word_a]
    size = dict(zip(word_a, a.shape, strict=True)) | dict(zip(word_b, b.shape, strict=True))

    def arranged(t: Tensor, word: str, *groups: list[str]) -> Tensor:
        order = [word.index(letter) for group in groups for letter in group]
        return t.permute(order).reshape([prod(size[letter] for letter in group) for group in groups])

    y = Product()(arranged(a, word_a, batch, rows, inner), arranged(b, word_b, batch, inner, columns))
    letters = [*batch, *rows, *columns]
    return "".join(letters), y.reshape([size[letter] for letter in letters])


def _without(word: str, t: Tensor, letters: set[str]) -> tuple[str, Tensor]:
    if not letters:
        return word, t
    kept = "".join(letter for letter in word if letter not in letters)
    return kept, t.sum([i for i, letter in enumerate(word) if letter in letters])


@rule(F.scaled_dot_product_attention)
def attention(
    call: Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: int | float = 0.0,
    is_causal: bool = False,
    scale: int | float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(q kᵀ / √d + mask) v: a product, a softmax, a product."""
    if dropout_p > 0:
        return NotImplemented
    if enable_gqa:
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    logits = Product(query.shape[-1] ** -0.5 if scale is None else scale)(query, key.mT)
    if is_causal:
        attn_mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
    if attn_mask is None:
        return Product()(Softmax(-1)(logits), value)
    if attn_mask.dtype != torch.bool:
        logits, attn_mask = logits + attn_mask, attn_mask > float("-inf")
    closed = ~attn_mask.any(-1, keepdim=True)  # a query that may look nowhere gets zeros
    weights = Softmax(-1)(logits.masked_fill(~attn_mask, float("-inf")).masked_fill(closed, 0.0))
    return Product()(weights.masked_fill(closed, 0.0), value)


@rule(torch.embedding)
def embedding(call: Call, weight: Tensor, indices: Tensor, padding_idx: int = -1, *_: Any, **__: Any) -> Tensor:
    """A selection of rows; torch's options that change only gradients are left out."""
    return torch.embedding(weight, indices, padding_idx)
