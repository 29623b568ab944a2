"""Products that know that their result is symmetric."""

import torch
from jaxtyping import Float
from scipy.linalg.blas import dsyrk, ssyrk
from torch import Tensor

#: torch has no symmetric product of its own.
SYRK = {torch.float32: ssyrk, torch.float64: dsyrk}


def add_gram(total: Float[Tensor, "B n n"], x: Float[Tensor, "B k n"]) -> None:
    """Add xᵀ x to the lower triangle, in place; :func:`mirror` completes the matrix.

    Half the work of the whole product, by BLAS' rank-k update; on a GPU, where the work is cheap, the whole product.
    """
    update = SYRK.get(total.dtype) if total.device.type == "cpu" else None
    if update is None:
        total.baddbmm_(x.mT, x)
        return
    assert total.is_contiguous()  # or BLAS would work on a copy
    for matrix, rows in zip(total, x.detach(), strict=True):  # column-major for BLAS: transposed, triangles swapped
        if not len(rows):
            continue
        by_columns = rows.mT.is_contiguous()  # as it stands: a copy can cost more than the product
        a = rows.numpy() if by_columns else rows.contiguous().numpy().T
        update(1.0, a, trans=by_columns, beta=1.0, c=matrix.numpy().T, lower=0, overwrite_c=1)


def mirror(matrix: Float[Tensor, "B n n"]) -> None:
    """Copy what :func:`add_gram` left below the diagonal to above it, in place."""
    lower = matrix.tril()
    matrix.copy_(lower + lower.tril(-1).mT)
