"""Linear layers, matrix products, and other sums of products."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from osculate.curvature.rules._base import Bilinear, Call, Pulled, Use, affine, rows_of, squares_of
from osculate.curvature.rules.elementwise import squared_elementwise


@rows_of(F.linear)
def linear(call: Call, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Use | None:
    """y = W a + b: one position for a vector, one for each token of a sequence."""
    return _product(call, input, weight, bias, lambda w: w.reshape(1, -1, w.shape[-1]))


@rows_of(torch.matmul, torch.mm, Tensor.matmul, Tensor.mm)
def matmul(call: Call, input: Tensor, other: Tensor) -> Use | None:
    """y = a W with the weight on the right, or y = W a for columns a with the weight on the left."""
    if call.source(input) is None:
        vector = other.ndim == 1
        return _product(call, input, other, None, lambda w: w.reshape(1, 1, -1) if vector else w.mT.unsqueeze(0))
    if call.source(other) is not None or input.ndim != 2 or other.ndim < 3:
        return None
    return affine(
        call,
        input,
        None,
        inputs=partial(_rows, other.mT),
        outputs=lambda g: g.mT.reshape(*g.shape[:2], -1, 1, g.shape[-2]),
        matrix=lambda w: w.unsqueeze(0),
    )


@rows_of(torch.addmm, Tensor.addmm)
def addmm(
    call: Call, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: int | float = 1, alpha: int | float = 1
) -> Use | None:
    """y = b + a W."""
    if beta != 1 or alpha != 1 or (call.source(input) is not None and input.ndim != 1):
        return None
    return _product(call, mat1, mat2, input, lambda w: w.mT.unsqueeze(0))


def _product(
    call: Call, input: Tensor, weight: Tensor, bias: Tensor | None, matrix: Callable[[Tensor], Tensor]
) -> Use | None:
    if input.ndim < 2 or weight.ndim > 2 or call.source(input) is not None:
        return None
    size = weight.numel() // input.shape[-1]
    return affine(
        call,
        weight,
        bias,
        inputs=partial(_rows, input),
        outputs=lambda g: g.reshape(*g.shape[:2], -1, 1, size),
        matrix=matrix,
    )


def _rows(input: Tensor, ones: bool) -> Tensor:
    """The features (N, R, 1, I), followed by a constant one if the layer has a bias."""
    a = input.reshape(input.shape[0], -1, 1, input.shape[-1])
    return torch.cat([a, a.new_ones(*a.shape[:-1], 1)], -1) if ones else a


class Linear(Bilinear):
    """y = x Wᵀ + b: m (W ∘ W) for x, mᵀ (x ∘ x) for W."""

    def forward(self, x: Tensor, w: Tensor, b: Tensor | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        return F.linear(x, w, b), (x, w)

    def gradient(self, needed: Sequence[bool], g: Tensor, x: Tensor, w: Tensor) -> Pulled:
        flat = g.reshape(-1, g.shape[-1])
        g_x = g @ w if needed[0] else None
        g_w = flat.mT @ x.reshape(-1, x.shape[-1]) if needed[1] else None
        return g_x, g_w, flat.sum(0) if needed[2] else None


@dataclass(frozen=True)
class Product(Bilinear):
    """y = scale · a b over the last two axes, the others broadcast."""

    scale: float = 1.0

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y = a @ b
        return y if self.scale == 1 else y * self.scale, (a, b)

    def pull(self, needed: Sequence[bool], m: Tensor, a: Tensor, b: Tensor | None, *rest: Any) -> Pulled:
        return super().pull(needed, m if self.scale == 1 else m * self.scale, a, b, *rest)

    def gradient(self, needed: Sequence[bool], g: Tensor, a: Tensor, b: Tensor) -> Pulled:
        g = g if self.scale == 1 else g * self.scale
        g_a = (g @ b.mT).sum_to_size(a.shape) if needed[0] else None
        return g_a, (a.mT @ g).sum_to_size(b.shape) if needed[1] else None


@squares_of(F.linear)
def linear_squares(call: Call, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear layer on vectors, sequences, or any leading axes."""
    w = weight if weight.ndim == 2 else weight.unsqueeze(0)
    y = Linear()(input, w, bias if bias is None else bias.reshape(-1))
    return y if weight.ndim == 2 else y.squeeze(-1)


@squares_of(
    torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm, torch.bmm, Tensor.bmm, torch.mv, Tensor.mv
)
def matmul_squares(call: Call, input: Tensor, other: Tensor) -> Tensor:
    """A product of matrices, or of their batches; a matrix shared by all data counts as a linear layer."""
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


@squares_of(torch.addmm, Tensor.addmm, torch.baddbmm, Tensor.baddbmm, torch.addmv, Tensor.addmv)
def addmm_squares(
    call: Call, input: Tensor, a: Tensor, b: Tensor, *, beta: int | float = 1, alpha: int | float = 1
) -> Tensor:
    """β c + α a b."""
    product = matmul_squares(call, a, b)
    if alpha != 1:
        product = squared_elementwise(call, torch.mul, product, alpha)
    if beta == 0:
        return product
    return product + (input if beta == 1 else squared_elementwise(call, torch.mul, input, beta))


@squares_of(torch.dot, Tensor.dot, torch.vdot, Tensor.vdot)
def dot_squares(call: Call, input: Tensor, other: Tensor) -> Tensor:
    """Σ_i a_i b_i."""
    return squared_elementwise(call, torch.mul, input, other).sum()


@squares_of(torch.outer, Tensor.outer, torch.ger, Tensor.ger)
def outer_squares(call: Call, input: Tensor, other: Tensor) -> Tensor:
    """a_i b_j."""
    return squared_elementwise(call, torch.mul, input.unsqueeze(-1), other)


@squares_of(torch.einsum, torch._VF.einsum)  # type: ignore[attr-defined]
def einsum(call: Call, equation: Any, *operands: Any, **_: Any) -> Any:
    """Products of two operands at a time, from left to right, as batched matrix products."""
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
        return NotImplemented  # diagonals, and broadcast axes of length one
    word, total = labels[0], tensors[0]
    for number in range(1, len(tensors)):
        later = set(out).union(*labels[number + 1 :])
        word, total = _contract(word, total, labels[number], tensors[number], later)
    if len(tensors) and set(word) - set(out):
        total = total.sum([i for i, letter in enumerate(word) if letter not in out])
        word = "".join(letter for letter in word if letter in out)
    return total.permute([word.index(letter) for letter in out])


def _contract(word_a: str, a: Tensor, word_b: str, b: Tensor, later: set[str]) -> tuple[str, Tensor]:
    """One product over the shared letters that no later term needs; letters of one alone are summed out first."""
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
