"""The interface of linear operators: a measurement of an image, and its exact adjoint."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from osculate.checks import require_positive, require_whole
from osculate.linalg import conjugate_gradients

#: Share of the largest eigenvalue of AᵀA by which a rough inverse is damped.
DAMPING = 1e-2


class LinearOperator(ABC):
    r"""A, from images (H, W) to data of any shape, and Aᵀ back.

    .. math:: \langle A x, y \rangle = \langle x, A^\top y \rangle

    Both are differentiable, take any number of leading axes, and work in the floating type and on the device of their
    argument. A new instrument is a class with :meth:`apply` and :meth:`transpose`.

    Args:
        image_shape: (H, W).
        data_shape: Shape of one measurement.

    Raises:
        ValueError: a shape is not of positive whole numbers, or the image's is not (H, W).
    """

    #: Floating type of its own arithmetic.
    dtype: torch.dtype = torch.double
    #: True if the rough inverse determines the brightness of an image; a damped one underestimates it.
    determines_brightness: bool = False

    def __init__(self, image_shape: Sequence[int], data_shape: Sequence[int]) -> None:
        self.image_shape = require_image_shape(image_shape)
        if not isinstance(data_shape, Iterable):
            raise ValueError(f"data_shape must be a shape such as (20, 41), got {data_shape!r}.")
        for size in data_shape:
            require_whole("every axis of the data", size)
        self.data_shape = tuple(int(size) for size in data_shape)

    @abstractmethod
    def apply(self, images: Float[Tensor, "S D"]) -> Float[Tensor, "S M"]:
        """A x for images as flat rows."""

    @abstractmethod
    def transpose(self, data: Float[Tensor, "S M"]) -> Float[Tensor, "S D"]:
        """Aᵀ y for data as flat rows."""

    @property
    def pixels(self) -> int:
        """D = H·W."""
        return prod(self.image_shape)

    @property
    def measurements(self) -> int:
        """M, the size of one measurement."""
        return prod(self.data_shape)

    def __call__(self, image: Tensor) -> Float[Tensor, "..."]:
        """A x, with the shape of the data behind the leading axes.

        Raises:
            ValueError: the image is of another shape, or not of floating type.
        """
        lead = self._lead(image, self.image_shape, "an image")
        return _Product.apply(image.reshape(-1, self.pixels), self, False).reshape(*lead, *self.data_shape)

    def adjoint(self, data: Tensor) -> Float[Tensor, "*S H W"]:
        """Aᵀ y, with (H, W) behind the leading axes.

        Raises:
            ValueError: the data are of another shape, or not of floating type.
        """
        lead = self._lead(data, self.data_shape, "data")
        return _Product.apply(data.reshape(-1, self.measurements), self, True).reshape(*lead, *self.image_shape)

    def matrix(self) -> Float[Tensor, "M D"]:
        """A as a dense matrix in double precision; a product for each column or row."""
        unit = torch.eye(min(self.pixels, self.measurements), dtype=torch.double)
        return self.transpose(unit) if self.measurements < self.pixels else self.apply(unit).T

    def rough_inverse(self, data: Float[Tensor, "..."]) -> Float[Tensor, "H W"]:
        """A first guess of the image of one measurement; a damped inverse by default."""
        return self.damped_inverse(data, DAMPING * self.norm() ** 2)

    def damped_inverse(self, data: Float[Tensor, "..."], weight: float) -> Float[Tensor, "H W"]:
        """(AᵀA + w I)⁻¹ Aᵀ y by conjugate gradients, in double precision."""
        right = self.transpose(data.double().reshape(1, -1))
        solution = conjugate_gradients(
            lambda x: self.transpose(self.apply(x)) + weight * x, right, tolerance=1e-6, max_iterations=2000
        )
        return solution.x.reshape(self.image_shape).to(data)

    def as_scipy(self) -> Any:
        """The same for flat arrays, as a linear operator of SciPy."""
        from scipy.sparse.linalg import LinearOperator as SciPyOperator

        def forward(flat: np.ndarray) -> np.ndarray:
            return self.apply(torch.from_numpy(flat).reshape(1, -1)).reshape(-1).numpy()

        def adjoint(flat: np.ndarray) -> np.ndarray:
            return self.transpose(torch.from_numpy(flat).reshape(1, -1)).reshape(-1).numpy()

        return SciPyOperator((self.measurements, self.pixels), matvec=forward, rmatvec=adjoint, dtype=float)

    def norm(self, iterations: int = 50) -> float:
        """A lower bound on the largest singular value, by power iteration."""
        x = torch.randn(1, self.pixels, dtype=torch.double, generator=torch.Generator().manual_seed(0))
        for _ in range(iterations):
            x = self.transpose(self.apply(x / x.norm()))
        return float(x.norm().sqrt())

    def _lead(self, tensor: Tensor, shape: tuple[int, ...], what: str) -> tuple[int, ...]:
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ValueError(f"{what} of {self!r} must be a tensor of floating type, got {kind}: pass .float().")
        if tensor.shape[-len(shape) :] != shape:
            raise ValueError(f"{what} of {self!r} must have shape {shape}, got {tuple(tensor.shape)}.")
        return tuple(tensor.shape[: -len(shape)])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.image_shape} -> {self.data_shape})"


def require_image_shape(shape: Sequence[int]) -> tuple[int, int]:
    """The height and width of images, checked.

    Raises:
        ValueError: ``shape`` is not two positive whole numbers.
    """
    if not isinstance(shape, Sequence) or len(shape) != 2:
        raise ValueError(f"image_shape must be a height and a width, (H, W), got {shape!r}.")
    for size in shape:
        require_whole("every side of the image", size)
    return int(shape[0]), int(shape[1])


def require_adjoint(operator: LinearOperator) -> None:
    """Test on random vectors that an operator is linear, and that its transpose is one.

    Args:
        operator: Operator whose methods compute in its ``dtype``.

    Raises:
        ValueError: either test fails by more than rounding.
    """
    generator, tolerance = torch.Generator().manual_seed(0), 1e3 * torch.finfo(operator.dtype).eps
    x = torch.randn(2, operator.pixels, generator=generator, dtype=torch.double)
    y = torch.randn(1, operator.measurements, generator=generator, dtype=torch.double)
    ax = operator.apply(torch.cat([x, x[:1] - 2 * x[1:]]))
    for what, found, wanted in (
        ("apply", ax, (3, operator.measurements)),
        ("transpose", operator.transpose(y), x[:1].shape),
    ):
        if found.shape != wanted:
            raise ValueError(
                f"{what} of {operator!r} must return rows of shape {tuple(wanted)}, got {tuple(found.shape)}."
            )
    if not bool(ax.isfinite().all()):
        raise ValueError(f"{operator!r} returns NaN or infinity for finite images: check its methods.")
    if not bool((ax[2] - ax[0] + 2 * ax[1]).norm() <= tolerance * ax.norm()):
        raise ValueError(f"{operator!r} is not linear, as A(x − 2z) is not A x − 2 A z: check its methods.")
    # inner products of related vectors do not cancel, so that an error of a few percent shows
    back, seen = operator.transpose(torch.cat([y, ax[:1]])), operator.apply(operator.transpose(y))
    for a, b, c, d in ((ax[0], ax[0], x[0], back[1]), (seen[0], y[0], back[0], back[0]), (ax[0], y[0], x[0], back[0])):
        left, right = float(a @ b), float(c @ d)
        if not abs(left - right) <= tolerance * float(a.norm() * b.norm() + c.norm() * d.norm()):
            raise ValueError(
                f"the transpose of {operator!r} is not its adjoint: ⟨A x, y⟩ = {left:.6g}, but ⟨x, Aᵀy⟩ = {right:.6g}. "
                "Check scalings, flips and the treatment of borders."
            )


class _Product(torch.autograd.Function):
    """A x or Aᵀ y; the gradient of each is the other operator applied to the gradient."""

    @staticmethod
    def forward(flat: Tensor, operator: LinearOperator, transposed: bool) -> Tensor:
        return operator.transpose(flat) if transposed else operator.apply(flat)

    @staticmethod
    def setup_context(ctx: object, inputs: tuple, output: Tensor) -> None:
        _, ctx.operator, ctx.transposed = inputs  # type: ignore[attr-defined]

    @staticmethod
    def vmap(info: Any, in_dims: tuple, flat: Tensor, operator: LinearOperator, transposed: bool) -> tuple[Tensor, int]:
        rows = flat.movedim(in_dims[0], 0)
        return _Product.apply(rows.flatten(0, 1), operator, transposed).unflatten(0, rows.shape[:2]), 0

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _Product.apply(gradient, ctx.operator, not ctx.transposed), None, None  # type: ignore[attr-defined]


def require_data(operator: LinearOperator, data: Tensor, noise: float | None = None) -> None:
    """Raise ValueError if measurements do not fit the operator, or the noise is not positive.

    Raises:
        ValueError: ``operator`` is not an operator; the data have another shape or type, hold NaN, or are all zero; the
            noise is not positive.
    """
    if not isinstance(operator, LinearOperator):
        raise ValueError(
            f"operator must be an object such as RayTransform((H, W), angles) or Matrix(matrix, (H, W)), got "
            f"{operator if isinstance(operator, type) else type(operator)}."
        )
    if not isinstance(data, Tensor) or not data.is_floating_point():
        found = (
            f"a tensor of {data.dtype}: pass data.float()"
            if isinstance(data, Tensor)
            else f"{type(data).__name__}: pass torch.as_tensor(data)"
        )
        raise ValueError(f"measurements must be a tensor of floating type, got {found}.")
    if data.dtype in (torch.float16, torch.bfloat16):
        raise ValueError(f"measurements must be in single or double precision, got {data.dtype}: pass data.float().")
    if operator.pixels < 4:
        raise ValueError(f"images of shape {operator.image_shape} are too small for a network of convolutions.")
    if tuple(data.shape) != operator.data_shape:
        raise ValueError(
            f"measurements of {operator!r} must have shape {operator.data_shape}, got {tuple(data.shape)}: check the "
            "number of angles and detectors, or transpose them."
        )
    if bad := int((~data.isfinite()).sum()):
        raise ValueError(f"{bad} of {data.numel()} measurements are NaN or infinite: leave them out, or repair them.")
    if not bool(data.any()):
        raise ValueError("all measurements are zero: pass measured data.")
    if noise is not None:
        require_positive("the noise (a standard deviation, in the units of the measurements)", noise)
