"""Products that know that their result is symmetric."""

from jaxtyping import Float
from torch import Tensor

#: Columns from which half a product is cheaper than the whole one.
LEAST = 256


def add_gram(total: Float[Tensor, "B n n"], x: Float[Tensor, "B k n"]) -> None:
    """Add xᵀ x at least to the lower triangle, in place; :func:`mirror` completes the matrix.

    Wide matrices are halved again and again, and the quarter above the diagonal is left out; on a GPU, where the work
    is cheap, the whole product.
    """
    n = x.shape[-1]
    if n < LEAST or total.device.type != "cpu":
        total.baddbmm_(x.mT, x)
        return
    half = n // 2
    left, right = x[..., :half], x[..., half:]
    add_gram(total[:, :half, :half], left)
    total[:, half:, :half].baddbmm_(right.mT, left)
    add_gram(total[:, half:, half:], right)


def mirror(matrix: Float[Tensor, "B n n"]) -> None:
    """Copy what :func:`add_gram` left below the diagonal to above it, in place."""
    lower = matrix.tril()
    matrix.copy_(lower + lower.tril(-1).mT)
