"""Products that know that their result is symmetric."""

from jaxtyping import Float
from torch import Tensor

#: Below this size one product is faster than three smaller ones.
SMALLEST = 64


def add_gram(total: Float[Tensor, "B n n"], x: Float[Tensor, "B k n"]) -> None:
    """Add xᵀ x to a symmetric matrix in place.

    For tall x the half below the diagonal is copied instead of computed again (down to blocks of 64); for flat ones
    the products are too small to gain by that.
    """
    n = x.shape[-1]
    if n < 2 * SMALLEST or x.shape[-2] < n:
        total.baddbmm_(x.mT, x)
        return
    half = n // 2
    left, right = x[..., :half], x[..., half:]
    add_gram(total[..., :half, :half], left)
    add_gram(total[..., half:, half:], right)
    corner = total[..., :half, half:]
    corner.baddbmm_(left.mT, right)
    total[..., half:, :half] = corner.mT
