"""Products that know that their result is symmetric."""

from collections.abc import Iterator

from jaxtyping import Float
from torch import Tensor

#: Rows of the result that one product computes.
STRIP = 128


def _strips(n: int) -> Iterator[slice]:
    yield from (slice(start, min(n, start + STRIP)) for start in range(0, n, STRIP))


def add_gram(total: Float[Tensor, "B n n"], x: Float[Tensor, "B k n"]) -> None:
    """Add xᵀ x to the lower triangle, in place; :func:`mirror` completes the matrix.

    A strip of rows at a time, up to the diagonal: little more than half the work of the whole product, and no copy.
    """
    for rows in _strips(x.shape[-1]):
        total[:, rows, : rows.stop].baddbmm_(x[..., rows].mT, x[..., : rows.stop])


def mirror(matrix: Float[Tensor, "B n n"]) -> None:
    """Copy what :func:`add_gram` left below the diagonal to above it, in place."""
    for rows in _strips(matrix.shape[-1]):
        matrix[:, : rows.start, rows] = matrix[:, rows, : rows.start].mT
