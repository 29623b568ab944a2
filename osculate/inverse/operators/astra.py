"""Geometries of the ASTRA toolbox: fan beams, strips, rays of any direction. An optional extra, under the GPL."""

from collections.abc import Mapping
from typing import Any

from osculate.checks import require_library
from osculate.inverse.operators.matrix import Matrix


def from_astra(projection: Mapping[str, Any], volume: Mapping[str, Any], projector: str = "line") -> Matrix:
    """An operator of ASTRA's CPU projectors, as a sparse matrix. [vanaarle2016]

    Args:
        projection: projection geometry from ``astra.create_proj_geom``.
        volume: volume geometry from ``astra.create_vol_geom``; two axes.
        projector: "line", "strip" or "linear", with the ending that ASTRA asks for ("line_fanflat").

    Returns:
        An operator with data of shape (angles, detectors).

    Raises:
        ImportError: ASTRA is not installed: ``pip install 'osculate[astra]'``.
        ValueError: ASTRA knows no such projector for this geometry.
    """
    require_library("astra", "geometries of ASTRA")
    import astra

    try:
        number = astra.create_projector(projector, dict(projection), dict(volume))
    except Exception as error:  # ASTRA's own type, which is not public
        raise ValueError(f"ASTRA made no projector {projector!r} for this geometry: {error}") from error
    try:
        held = astra.projector.matrix(number)
        matrix = astra.matrix.get(held)
        astra.matrix.delete(held)
    finally:
        astra.projector.delete(number)
    return Matrix(matrix, astra.geom_size(dict(volume)), astra.geom_size(dict(projection)))
