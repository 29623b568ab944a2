"""Synthetic test images for reconstruction."""

from math import cos, pi, radians, sin

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.checks import require_whole

#: Ellipses: value added, half axes, centre, and angle in degrees, in a square from −1 to 1.
SHEPP_LOGAN = (
    (1.0, 0.69, 0.92, 0.0, 0.0, 0.0),
    (-0.8, 0.6624, 0.874, 0.0, -0.0184, 0.0),
    (-0.2, 0.11, 0.31, 0.22, 0.0, -18.0),
    (-0.2, 0.16, 0.41, -0.22, 0.0, 18.0),
    (0.1, 0.21, 0.25, 0.0, 0.35, 0.0),
    (0.1, 0.046, 0.046, 0.0, 0.1, 0.0),
    (0.1, 0.046, 0.046, 0.0, -0.1, 0.0),
    (0.1, 0.046, 0.023, -0.08, -0.605, 0.0),
    (0.1, 0.023, 0.023, 0.0, -0.606, 0.0),
    (0.1, 0.023, 0.046, 0.06, -0.605, 0.0),
)
#: Points along each side of a pixel, over which it is averaged.
FINE = 4


def shepp_logan(size: int) -> Float[Tensor, "H W"]:
    """The head phantom of Shepp and Logan, with the contrasts of Toft (1996), values in [0, 1].

    Args:
        size: H = W.

    >>> shepp_logan(32)[16, ::8]
    tensor([0.0000, 0.2000, 0.2062, 0.2000])
    """
    x, y = _points(size)
    image = torch.zeros_like(x)
    for value, across, up, x0, y0, degrees in SHEPP_LOGAN:
        c, s = cos(radians(degrees)), sin(radians(degrees))
        u, v = (x - x0) * c + (y - y0) * s, (y - y0) * c - (x - x0) * s
        image += value * ((u / across).square() + (v / up).square() <= 1)
    return _pixels(image)


def rectangles(size: int, count: int = 5, generator: torch.Generator | None = None) -> Float[Tensor, "H W"]:
    """Rotated rectangles of random size, position and brightness on black, values in [0, 1]; later ones on top.

    Args:
        size: H = W.
        count: Number of rectangles.
        generator: Source of random numbers.
    """
    require_whole("count", count)
    x, y = _points(size)
    image = torch.zeros_like(x)
    for value, across, up, x0, y0, turn in torch.rand(count, 6, generator=generator, dtype=torch.double).tolist():
        c, s = cos(pi * turn), sin(pi * turn)
        x0, y0 = 1.2 * x0 - 0.6, 1.2 * y0 - 0.6
        u, v = (x - x0) * c + (y - y0) * s, (y - y0) * c - (x - x0) * s
        inside = (u.abs() <= 0.1 + 0.35 * across) & (v.abs() <= 0.1 + 0.35 * up)
        image = torch.where(inside, 0.2 + 0.8 * value, image)
    return _pixels(image)


def _points(size: int) -> tuple[Tensor, Tensor]:
    require_whole("size", size)
    line = (torch.arange(FINE * size, dtype=torch.double) + 0.5) / (FINE * size) * 2 - 1
    y, x = torch.meshgrid(-line, line, indexing="ij")
    return x, y


def _pixels(fine: Tensor) -> Tensor:
    size = len(fine) // FINE
    return fine.reshape(size, FINE, size, FINE).mean((1, 3)).clamp(0, 1).float()
