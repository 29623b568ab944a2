"""Products that know that their result is symmetric."""

from jaxtyping import Float
from torch import Tensor

#: Entries of a matrix from which panels are cheaper than the whole product, and rows of a panel at least and at most.
PANEL_ENTRIES, SMALLEST_PANEL, LARGEST_PANEL = 2**14, 48, 128


def add_gram(total: Float[Tensor, "B n n"], x: Float[Tensor, "B k n"]) -> None:
    """Add xᵀ x at least to the lower triangle, in place; :func:`mirror` completes the matrix.

    Panels of an eighth of the rows leave out most of what stands above the diagonal; on a GPU, where the work is cheap,
    the whole product.
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
    """Copy what :func:`add_gram` left below the diagonal to above it, in place."""
    lower = matrix.tril()
    matrix.copy_(lower + lower.tril(-1).mT)
