"""Any instrument that is there as a matrix."""

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
        data_shape: Shape in which one measurement is shown; (M,) by default.

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
                f"an operator's matrix is a tensor, an array or sparse, of real numbers, not {type(matrix).__name__} "
                f"of {raw.dtype}: see FromFunctions for other instruments, and stack real and imaginary parts."
            )
        own = csr_array(raw, dtype=float) if issparse(raw) else np.asarray(raw, dtype=float)
        if own.ndim != 2:
            raise ValueError(f"an operator's matrix has two axes, not shape {own.shape}.")
        super().__init__(image_shape, own.shape[:1] if data_shape is None else data_shape)
        if own.shape != (self.measurements, self.pixels):
            raise ValueError(
                f"a matrix of shape {own.shape} does not take images {self.image_shape} to data {self.data_shape}: "
                f"it should have shape {(self.measurements, self.pixels)}."
            )
        if not np.isfinite(own.data if issparse(own) else own).all():
            raise ValueError("an operator's matrix holds NaN or infinity.")
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
        """A and Aᵀ in the type and on the device of what they are to meet."""
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
    # The layout is young, and torch warns once of it, from here; products with the old layout take many times as long.
    # The filter is for this warning of this module alone, and stays: catch_warnings would restore what other threads
    # may have changed meanwhile.
    warnings.filterwarnings("ignore", "Sparse CSR tensor support", UserWarning, re.escape(__name__))
    return torch.sparse_csr_tensor(starts, columns, entries, matrix.shape, check_invariants=True)
