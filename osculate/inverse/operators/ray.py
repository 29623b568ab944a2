"""X-rays, the integrals of an image along straight lines: parallel beams, and any geometry of the ASTRA toolbox."""

from collections.abc import Mapping, Sequence
from math import ceil, cos, hypot, pi, sin
from numbers import Real
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from osculate.checks import require_library, require_whole
from osculate.inverse.operators._base import require_image_shape
from osculate.inverse.operators.matrix import Matrix


class RayTransform(Matrix):
    r"""The ray transform of an image for parallel beams, as a sparse matrix, and its exact transpose.

    .. math:: (A x)_{ks} = \int x(s\, n_k + t\, n_k^\perp)\, dt, \qquad n_k = (\cos\theta_k, \sin\theta_k)

    Pixels have side 1, x runs to the right and y up from the centre of the image, and the image is zero outside. A ray
    is followed from row to row (from column to column if it is flatter), with linear interpolation of the image along
    each. [joseph1982] The numbering of angles and detectors is that of ASTRA's parallel geometry.

    Args:
        image_shape: (H, W).
        angles: Number of angles, evenly spread over half a turn from 0; or the angles themselves, in radians.
        detectors: Number of rays at each angle, one pixel apart and centred; by default enough to cover the diagonal.

    Raises:
        ValueError: there are no angles, one is not finite, or they span more than two turns.

    Data have the shape (angles, detectors). Cost: about 2·max(H, W) entries of the matrix for each ray.

    >>> rays = RayTransform((3, 3), angles=2, detectors=3)
    >>> rays(torch.tensor([[0.0, 1.0, 0.0], [0.0, 2.0, 0.0], [0.0, 3.0, 0.0]]))
    tensor([[0., 6., 0.],
            [3., 2., 1.]])
    """

    determines_brightness = True

    def __init__(self, image_shape: Sequence[int], angles: Any = 20, detectors: int | None = None) -> None:
        from scipy.sparse import csr_array

        if isinstance(angles, Real):
            require_whole("the number of angles", angles)
            count = int(angles)  # type: ignore[call-overload]
            angles = [k * pi / count for k in range(count)]
        self.angles: Float[Tensor, " K"] = torch.as_tensor(angles, dtype=torch.double)
        if self.angles.ndim != 1:
            raise ValueError(f"angles must be a number of them, or radians on one axis, got shape {self.angles.shape}.")
        if not len(self.angles) or not bool(self.angles.isfinite().all()):
            raise ValueError(f"angles must be one or more finite numbers, got {self.angles}.")
        if float(self.angles.max() - self.angles.min()) > 4 * pi:
            raise ValueError(
                f"angles must be in radians, got {float(self.angles.min()):.3g} to {float(self.angles.max()):.3g}: "
                "convert degrees with torch.deg2rad."
            )
        image_shape = require_image_shape(image_shape)
        self.detectors = 2 * ceil((hypot(*image_shape) - 1) / 2) + 1 if detectors is None else detectors
        require_whole("the number of detectors", self.detectors)
        blocks = [_rays(image_shape, float(angle), self.detectors) for angle in self.angles]
        rows = np.concatenate([row + k * self.detectors for k, (row, _, _) in enumerate(blocks)])
        columns, lengths = (np.concatenate([block[part] for block in blocks]) for part in (1, 2))
        shape = (len(self.angles) * self.detectors, image_shape[0] * image_shape[1])
        matrix = csr_array((lengths, (rows, columns)), shape=shape)
        super().__init__(matrix, image_shape, (len(self.angles), self.detectors))

    def rough_inverse(self, data: Float[Tensor, "K N"]) -> Float[Tensor, "H W"]:
        """Filtered back-projection, (π/K) Aᵀ (ramp ∗ y). [ramachandran1971]"""
        offset = torch.arange(1 - self.detectors, self.detectors, device=data.device)
        ramp = torch.where(offset % 2 != 0, -1 / (pi * offset.clamp(min=1).maximum(-offset)).square(), 0.0)
        ramp[self.detectors - 1] = 0.25
        filtered = F.conv1d(data.unsqueeze(1), ramp.to(data)[None, None], padding=self.detectors - 1)
        return pi / len(self.angles) * self.adjoint(filtered.squeeze(1))


def _rays(image_shape: Sequence[int], angle: float, detectors: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The detectors that meet each pixel at one angle, and the lengths of the intersections."""
    height, width = image_shape
    c, s = cos(angle), sin(angle)
    position = np.arange(detectors) - (detectors - 1) / 2
    steep = abs(c) >= abs(s)  # the ray crosses every row; otherwise every column
    lines, across = (height, width) if steep else (width, height)
    line = np.arange(lines)
    if steep:  # x cos θ + y sin θ = position, solved for x in each row
        centre = (position[:, None] - ((height - 1) / 2 - line) * s) / c + (width - 1) / 2
        length = 1 / abs(c)
    else:
        centre = (height - 1) / 2 - (position[:, None] - (line - (width - 1) / 2) * c) / s
        length = 1 / abs(s)
    first = np.floor(centre).astype(np.int64)
    found = []
    for place, weight in ((first, first + 1 - centre), (first + 1, centre - first)):
        inside = (place >= 0) & (place < across) & (weight > 0)
        ray, at = np.nonzero(inside)
        pixel = at * width + place[inside] if steep else place[inside] * width + at
        found.append((ray, pixel, weight[inside] * length))
    ray, pixel, weight = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return ray, pixel, weight


def from_astra(projection: Mapping[str, Any], volume: Mapping[str, Any], projector: str = "line") -> Matrix:
    """An operator of ASTRA's CPU projectors, as a sparse matrix: fan beams, strips, rays of any direction.

    ASTRA is an optional extra, under the GPL. [vanaarle2016]

    Args:
        projection: Projection geometry from ``astra.create_proj_geom``.
        volume: Volume geometry from ``astra.create_vol_geom``; two axes.
        projector: "line", "strip" or "linear", with the suffix that ASTRA requires ("line_fanflat").

    Returns:
        An operator with data of shape (angles, detectors).

    Raises:
        ImportError: ASTRA is not installed: ``pip install 'osculate[astra]'``.
        ValueError: ASTRA has no such projector for this geometry.
    """
    require_library("astra", "geometries of ASTRA")
    import astra

    try:
        number = astra.create_projector(projector, dict(projection), dict(volume))
    except Exception as error:  # a type of ASTRA that is not public
        raise ValueError(f"ASTRA has no projector {projector!r} for this geometry: {error}.") from error
    try:
        held = astra.projector.matrix(number)
        matrix = astra.matrix.get(held)
        astra.matrix.delete(held)
    finally:
        astra.projector.delete(number)
    return Matrix(matrix, astra.geom_size(dict(volume)), astra.geom_size(dict(projection)))
