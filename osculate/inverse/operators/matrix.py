"""Operators given as a matrix."""

import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from osculate.inverse.operators._base import LinearOperator


class Matrix(LinearOperator):
    """A as a dense matrix, or a sparse one of SciPy.

    Args:
        matrix: (M, H·W): a tensor, an array, or a sparse matrix.
        image_shape: (H, W).
        data_shape: Shape of one measurement; (M,) by default.

    Raises:
        ValueError: the shapes do not fit, or an entry is NaN or infinite.

    >>> Matrix(torch.eye(6)[:2], (2, 3))(torch.arange(6.0).reshape(2, 3))
    tensor([0., 1.])
    """

    def __init__(self, matrix: object, image_shape: Sequence[int], data_shape: Sequence[int] | None = None) -> None:
        from scipy.sparse import csr_array, issparse

        if isinstance(matrix, Tensor):
            matrix = matrix.detach().to_dense().cpu().numpy()
        raw: Any = matrix if issparse(matrix) else np.asarray(matrix)
        if raw.dtype.kind not in "fiub":
            raise ValueError(
                f"the matrix of an operator must be a tensor, an array or sparse, of real numbers, got "
                f"{type(matrix).__name__} of {raw.dtype}: stack real and imaginary parts, or use FromFunctions."
            )
        own = csr_array(raw, dtype=float) if issparse(raw) else np.asarray(raw, dtype=float)
        if own.ndim != 2:
            raise ValueError(f"the matrix of an operator must have two axes, got shape {own.shape}.")
        super().__init__(image_shape, own.shape[:1] if data_shape is None else data_shape)
        if own.shape != (self.measurements, self.pixels):
            raise ValueError(
                f"the matrix from images {self.image_shape} to data {self.data_shape} must have shape "
                f"{(self.measurements, self.pixels)}, got {own.shape}."
            )
        if not np.isfinite(own.data if issparse(own) else own).all():
            raise ValueError("the matrix of an operator holds NaN or infinity: pass finite values.")
        self._matrix = _tensor(own)
        self._transposed = _tensor(csr_array(own.T) if issparse(own) else own.T)
        self._ready: dict[tuple, tuple[Tensor, Tensor]] = {}

    def apply(self, images: Float[Tensor, "S D"]) -> Float[Tensor, "S M"]:
        """A x for images as flat rows."""
        return (self._pair(images)[0] @ images.T).T

    def transpose(self, data: Float[Tensor, "S M"]) -> Float[Tensor, "S D"]:
        """Aᵀ y for data as flat rows."""
        return (self._pair(data)[1] @ data.T).T

    def _pair(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """A and Aᵀ with the type and device of a tensor."""
        key = (like.dtype, like.device)
        if key not in self._ready:
            self._ready[key] = (self._matrix.to(like), self._transposed.to(like))
        return self._ready[key]


def _tensor(matrix: Any) -> Tensor:
    from scipy.sparse import issparse

    if not issparse(matrix):
        return torch.from_numpy(np.ascontiguousarray(matrix))
    starts, columns = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices))
    entries = torch.from_numpy(matrix.data)
    # torch warns once that this layout is in beta; products with the old layout take many times as long. The filter
    # matches this warning from this module alone, and stays: catch_warnings would undo changes by other threads.
    warnings.filterwarnings("ignore", "Sparse CSR tensor support", UserWarning, re.escape(__name__))
    return torch.sparse_csr_tensor(starts, columns, entries, matrix.shape, check_invariants=True)
