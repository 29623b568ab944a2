"""Total variation, and reconstructions without a network: filtered back-projection, Tikhonov, total variation."""

import warnings
from collections.abc import Sequence
from math import pi

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from osculate.checks import require_library, require_positive, require_whole
from osculate.inverse.operators import LinearOperator, Matrix, RayTransform, require_adjoint
from osculate.inverse.operators._base import require_data, require_image_shape

#: Largest relative deviation of a step between angles that back-projection accepts without a warning.
UNEVEN = 0.1
#: Largest singular value to which operators are scaled for total variation; that of the differences is at most √8.
#: The algorithm is fastest near this value: with 1 or 30 its 2,000 iterations end well above the minimum.
NORM = 10.0
#: Ratio of the guess of the largest value to that of the first guess of the image, which is smooth. Too large a guess
#: costs some sharpness, too small a guess clips bright pixels.
HEADROOM = 1.5
#: Ratio of the first guess of the largest value to the given one above which the scale seems to be missing.
TOO_BRIGHT = 4.0


def filtered_back_projection(operator: LinearOperator, data: Tensor) -> Float[Tensor, "H W"]:
    r"""The inverse of the ray transform for very many angles, x = (π/K) Aᵀ (ramp ∗ y). [ramachandran1971]

    Args:
        operator: A ray transform with angles evenly spread over half a turn, or a whole one.
        data: The sinogram.

    Raises:
        ValueError: the operator is not a ray transform, or the data do not fit it.
    """
    if not isinstance(operator, RayTransform):
        raise ValueError(f"filtered back-projection needs a ray transform, got {operator!r}: use tikhonov.")
    require_data(operator, data)
    if not (_even(operator.angles, pi) or _even(operator.angles, 2 * pi)):
        warnings.warn(
            "filtered back-projection assumes angles evenly spread over half a turn or a whole one, and these are not: "
            "expect streaks, or use tikhonov or tv_reconstruction.",
            stacklevel=2,
        )
    return operator.rough_inverse(data)


def _even(angles: Tensor, turn: float) -> bool:
    """Return True if the angles divide a turn into equal steps."""
    around = (angles % turn).sort().values
    steps = torch.cat([around, around[:1] + turn]).diff() * len(angles) / turn
    return bool(((steps - 1).abs() <= UNEVEN).all())


def tikhonov(operator: LinearOperator, data: Tensor, weight: float) -> Float[Tensor, "H W"]:
    r"""argmin ½ ‖A x − y‖² + ½ w ‖x‖², by conjugate gradients.

    Args:
        operator: A.
        data: y.
        weight: w, in units of the squared entries of A.

    Raises:
        ValueError: the data do not fit the operator, or the weight is not positive.
    """
    require_data(operator, data)
    require_adjoint(operator)
    require_positive("the weight of Tikhonov's penalty", weight)
    return operator.damped_inverse(data, weight)


def tv_reconstruction(
    operator: LinearOperator,
    data: Tensor,
    weight: float,
    bounds: tuple[float, float] = (0.0, 1.0),
    iterations: int = 2000,
) -> Float[Tensor, "H W"]:
    r"""argmin ½ ‖A x − y‖² + w TV(x) over images within bounds, by the primal-dual algorithm. [chambolle2011]

    In double precision on the CPU, by PyProximal. Data in other units need other ``bounds``: (0, the largest value).

    Args:
        operator: A.
        data: y.
        weight: w; λ nats per unit of total variation at a noise of σ are w = λ σ², or w = λ σ² / scale per unit of the
            image divided by a scale.
        bounds: The smallest and the largest value of a pixel.
        iterations: Number of iterations.

    Raises:
        ValueError: the data do not fit the operator, weight or iterations are not positive, or the bounds are not two
            ascending numbers.
    """
    require_library("pyproximal", "reconstructions by total variation")
    import pylops  # imported late, as this takes a second
    import pyproximal
    from pyproximal.optimization.primaldual import PrimalDual

    require_data(operator, data)
    require_adjoint(operator)
    require_positive("the weight of the total variation", weight)
    require_whole("iterations", iterations)
    if len(bounds) != 2 or not bounds[0] < bounds[1]:
        raise ValueError(f"bounds must be the smallest and the largest value of a pixel, got {bounds}.")
    warn_of_scale(operator.rough_inverse(data), bounds[1], "bounds=(0, scale)")
    slopes = differences(operator.image_shape)
    unit = operator.norm() / NORM
    own, neighbours = (pylops.aslinearoperator(each.as_scipy()) for each in (operator, slopes))
    both = pylops.VStack([own * (1 / unit), neighbours])
    y = data.detach().cpu().double().reshape(-1).numpy() / unit
    penalties = pyproximal.VStack(
        [pyproximal.L2(b=y), pyproximal.L1(sigma=weight / unit**2)], nn=[operator.measurements, slopes.measurements]
    )
    step = 0.95 / (NORM**2 + 8) ** 0.5  # ‖D‖² ≤ 8
    start = np.full(operator.pixels, min(max(0.0, bounds[0]), bounds[1]))
    box = pyproximal.Box(*bounds)
    found = PrimalDual(box, penalties, both, start, tau=step, mu=step, niter=iterations)
    return torch.from_numpy(np.asarray(found)).reshape(operator.image_shape).to(data)


def brightness(operator: LinearOperator, data: Tensor) -> float:
    """A guess of the largest value of an image from its ray transform: 1.5 times that of the first reconstruction.

    Mostly too large if there is noise or angles are few; too small for objects of single pixels.

    Raises:
        ValueError: the operator is not a ray transform: the damped inverse of others underestimates the
            brightness. Or the measurements or the first guess are negative: images are assumed to be positive.
    """
    require_data(operator, data)
    if not operator.determines_brightness:
        raise ValueError(
            f"the largest value of an image can only be guessed from a ray transform, got {operator!r}: pass scale, "
            "for example 1."
        )
    largest = float(operator.rough_inverse(data).max())
    if not (largest > 0 and float(data.mean()) > 0):
        raise ValueError("the measurements are not those of an image with positive values: check signs and operator.")
    return HEADROOM * largest


def warn_of_scale(guess: Float[Tensor, "H W"], largest: float = 1.0, name: str = "scale") -> None:
    """Warn of data that seem to be of a much brighter image.

    Args:
        guess: The rough inverse of the data.
        largest: Largest value that the image may have.
        name: Name of the argument, for messages.
    """
    if (times := float(guess.double().quantile(0.995)) / largest) > TOO_BRIGHT:
        warnings.warn(
            f"the image seems to have values up to about {times:.3g} times the largest allowed value: divide data and "
            f"noise by the largest value of the image, or pass it as {name}.",
            stacklevel=3,
        )


def differences(image_shape: Sequence[int]) -> Matrix:
    """D, the H·(W − 1) + (H − 1)·W differences between neighbours, as an operator.

    >>> differences((2, 2))(torch.tensor([[1.0, 2.0], [5.0, 9.0]]))
    tensor([1., 4., 4., 7.])
    """
    from scipy.sparse import csr_array

    height, width = require_image_shape(image_shape)
    pixel = np.arange(height * width).reshape(height, width)
    before = np.concatenate([pixel[:, :-1].ravel(), pixel[:-1].ravel()])
    after = np.concatenate([pixel[:, 1:].ravel(), pixel[1:].ravel()])
    if not len(before):
        raise ValueError("an image of a single pixel has no differences between neighbours: pass a larger image_shape.")
    row, one = np.arange(len(before)), np.ones(len(before))
    places = (np.concatenate([row, row]), np.concatenate([after, before]))
    return Matrix(csr_array((np.concatenate([one, -one]), places), (len(row), pixel.size)), (height, width))


def total_variation(image: Float[Tensor, "*S H W"]) -> Float[Tensor, "*S"]:
    r"""Anisotropic total variation, TV(x) = ‖D x‖₁.

    >>> total_variation(torch.tensor([[1.0, 2.0], [5.0, 9.0]]))
    tensor(16.)
    """
    return image.diff(dim=-1).abs().sum((-2, -1)) + image.diff(dim=-2).abs().sum((-2, -1))
