"""An instrument that is a pair of functions of the user's."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.inverse.operators._base import LinearOperator


class FromFunctions(LinearOperator):
    """A and Aᵀ as two functions, of any library.

    On construction it is tested on random vectors that the first is linear and the second its adjoint, as exactly as
    the type that they return allows.

    Args:
        forward: an image (H, W) to its data.
        adjoint: data to an image (H, W).
        image_shape: (H, W).
        data_shape: of one measurement.
        dtype: what the functions compute in; they get and return tensors of it.

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
        self._forward, self._backward, self._dtype = forward, adjoint, dtype
        self._verify()

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
        for row in rows.to(self._dtype).reshape(-1, *given):
            result = function(row)
            if not isinstance(result, Tensor) or result.shape != wanted or not result.is_floating_point():
                found = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
                raise ValueError(f"{function!r} takes shape {given} to {found}, and should return floats of {wanted}.")
            results.append(result.reshape(-1))
        return torch.stack(results).to(rows)

    def _verify(self) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(2, self.pixels, generator=generator, dtype=torch.double)
        y = torch.randn(1, self.measurements, generator=generator, dtype=torch.double)
        eps = torch.finfo(self._dtype).eps
        ax = self.apply(torch.cat([x, x[:1] - 2 * x[1:]]))
        if not bool((ax[2] - ax[0] + 2 * ax[1]).norm() <= 1e3 * eps * ax.norm()):
            raise ValueError("the forward function is not linear: A(x − 2z) is not A x − 2 A z.")
        # inner products of vectors that belong together do not cancel, so that an error of a few percent shows
        back, seen = self.transpose(torch.cat([y, ax[:1]])), self.apply(self.transpose(y))
        pairs = ((ax[0], ax[0], x[0], back[1]), (seen[0], y[0], back[0], back[0]), (ax[0], y[0], x[0], back[0]))
        for a, b, c, d in pairs:
            left, right = float(a @ b), float(c @ d)
            if not abs(left - right) <= 1e3 * eps * float(a.norm() * b.norm() + c.norm() * d.norm()):
                raise ValueError(
                    f"the second function is not the adjoint of the first: ⟨A x, y⟩ = {left:.6g}, but ⟨x, Aᵀy⟩ = "
                    f"{right:.6g}. Check scalings, flips and the treatment of borders."
                )
