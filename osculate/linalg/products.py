"""Symmetric products of a matrix with itself."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

#: Smallest number of entries for which panels are cheaper than the whole product, and bounds on the rows of a panel.
PANEL_ENTRIES, SMALLEST_PANEL, LARGEST_PANEL = 2**14, 48, 128


def add_gram(total: Float[Tensor, "B n n"], x: Float[Tensor, "B k n"]) -> None:
    """Add at least the lower triangle of xᵀ x, in place; :func:`mirror` completes the matrix.

    Panels of an eighth of the rows skip most of the upper triangle; on a GPU the whole product is faster.
    """
    n = x.shape[-1]
    if x[0].numel() < PANEL_ENTRIES or total.device.type != "cpu":
        total.baddbmm_(x.mT, x)
        return
    width = min(LARGEST_PANEL, max(SMALLEST_PANEL, n // 8))
    for start in range(0, n, width):
        stop = min(n, start + width)
        total[:, start:stop, :stop].baddbmm_(x[..., start:stop].mT, x[..., :stop])


def mirror(matrix: Float[Tensor, "B n n"]) -> None:
    """Copy the lower triangle of sums by :func:`add_gram` to the upper one, in place."""
    upper = matrix.tril(-1).mT
    matrix.tril_().add_(upper)


#: Numbers of the rows that :func:`row_products` converts to double precision at once.
CONVERTED = 2**24


def row_products(x: Float[Tensor, "K p"]) -> Float[Tensor, "K K"]:
    """X Xᵀ in double precision, positive semi-definite up to its rounding whatever the precision of X."""
    total = torch.zeros(len(x), len(x), dtype=torch.double, device=x.device)
    recorded = x.requires_grad and torch.is_grad_enabled()
    for part in x.split(max(1, CONVERTED // max(1, len(x))), 1):
        wide = part.double()
        if recorded:
            total = total + wide @ wide.T
        else:
            add_gram(total.unsqueeze(0), wide.T.unsqueeze(0))
    if not recorded:
        mirror(total.unsqueeze(0))
    return total


class SymmetricProduct(torch.autograd.Function):
    """A v for a symmetric A that is given as a function; the derivative is A times that of v."""

    @staticmethod
    def forward(ctx: Any, product: Callable[[Tensor], Tensor], v: Tensor) -> Tensor:
        ctx.product = product
        return product(v)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, SymmetricProduct.apply(ctx.product, gradient)


class SquaredNorm(torch.autograd.Function):
    """vᵀ A v for a symmetric A that is given as a function: value and derivative share one product."""

    @staticmethod
    def forward(ctx: Any, product: Callable[[Tensor], Tensor], v: Float[Tensor, " P"]) -> Float[Tensor, ""]:
        ctx.product, result = product, product(v)
        ctx.save_for_backward(v, result)
        return v @ result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        v, result = ctx.saved_tensors
        if torch.is_grad_enabled():  # a graph of the derivative is asked for
            result = SymmetricProduct.apply(ctx.product, v)
        return None, 2 * gradient * result
