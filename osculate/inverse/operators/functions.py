"""Operators made of a user's pair of functions."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.inverse.operators._base import LinearOperator, require_adjoint


class FromFunctions(LinearOperator):
    """A and Aᵀ as two functions, of any library.

    The constructor tests on random vectors that the first is linear and the second its adjoint, up to the rounding of
    ``dtype``.

    Args:
        forward: Function from an image (H, W) to its data.
        adjoint: Function from data to an image (H, W).
        image_shape: (H, W).
        data_shape: Shape of one measurement.
        dtype: Floating type of the tensors that the functions take and return.

    Raises:
        ValueError: a function returns another shape or type, the first is not linear, or the second not its adjoint.

    >>> FromFunctions(lambda x: 2 * x.sum(0), lambda y: 2 * y.expand(3, 2), (3, 2), (2,))(torch.ones(3, 2))
    tensor([6., 6.])
    """

    def __init__(
        self,
        forward: Callable[[Tensor], Tensor],
        adjoint: Callable[[Tensor], Tensor],
        image_shape: Sequence[int],
        data_shape: Sequence[int],
        dtype: torch.dtype = torch.double,
    ) -> None:
        super().__init__(image_shape, data_shape)
        self._forward, self._backward, self.dtype = forward, adjoint, dtype
        require_adjoint(self)

    def apply(self, images: Float[Tensor, "S D"]) -> Float[Tensor, "S M"]:
        """A x for images as flat rows."""
        return self._each(self._forward, images, self.image_shape, self.data_shape)

    def transpose(self, data: Float[Tensor, "S M"]) -> Float[Tensor, "S D"]:
        """Aᵀ y for data as flat rows."""
        return self._each(self._backward, data, self.data_shape, self.image_shape)

    def _each(
        self, function: Callable[[Tensor], Tensor], rows: Tensor, given: tuple[int, ...], wanted: tuple[int, ...]
    ) -> Tensor:
        results = []
        for row in rows.to(self.dtype).reshape(-1, *given):
            result = function(row)
            if not isinstance(result, Tensor) or result.shape != wanted or not result.is_floating_point():
                found = (
                    f"{tuple(result.shape)}, {result.dtype}" if isinstance(result, Tensor) else type(result).__name__
                )
                raise ValueError(
                    f"{function!r} must map shape {given} to a floating-point tensor of shape {wanted}, got {found}: "
                    "wrap arrays in torch.as_tensor."
                )
            if torch.finfo(result.dtype).eps > torch.finfo(self.dtype).eps:
                raise ValueError(
                    f"{function!r} takes {self.dtype} and returns {result.dtype}, which is less exact: give "
                    f"dtype={result.dtype}."
                )
            results.append(result.reshape(-1))
        return torch.stack(results).to(rows)
