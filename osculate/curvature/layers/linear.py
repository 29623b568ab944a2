"""Linear layers and matrix products on vectors, sequences, or any leading axes."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from osculate.curvature.layers._base import Call, Use, affine, rule, with_ones


@rule(F.linear)
def linear(call: Call, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Use | None:
    """y = W a + b: one position for a vector, one for each token of a sequence."""
    return _product(call, input, weight, bias, lambda w: w.reshape(1, -1, w.shape[-1]))


@rule(torch.matmul, torch.mm, Tensor.matmul, Tensor.mm)
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


@rule(torch.addmm, Tensor.addmm)
def addmm(call: Call, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Use | None:
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
    return with_ones(input.reshape(len(input), -1, 1, input.shape[-1]), ones)
