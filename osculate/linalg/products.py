"""Products that know that their result is symmetric."""

from jaxtyping import Float
from torch import Tensor

#: Below this size one product is faster than three smaller ones.
SMALLEST = 64


def gram(x: Float[Tensor, "*B k n"]) -> Float[Tensor, "*B n n"]:
    """xᵀ x, with the half above the diagonal copied instead of computed again (down to blocks of 64)."""
    n = x.shape[-1]
    if n < 2 * SMALLEST:
        return x.mT @ x
    left, right = x[..., : n // 2], x[..., n // 2 :]
    result = x.new_empty(*x.shape[:-2], n, n)
    result[..., : n // 2, : n // 2] = gram(left)
    result[..., n // 2 :, n // 2 :] = gram(right)
    result[..., : n // 2, n // 2 :] = left.mT @ right
    result[..., n // 2 :, : n // 2] = result[..., : n // 2, n // 2 :].mT
    return result
