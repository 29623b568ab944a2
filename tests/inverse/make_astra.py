"""Makes astra.npz: what ASTRA 2.5 measures of a smooth image. Needs the package: python tests/inverse/make_astra.py."""

from pathlib import Path

import numpy as np

ROWS, COLUMNS, DETECTORS = 28, 36, 45
BLOBS = ((1.0, 12.0, 9.0, 4.0), (0.7, 24.0, 18.0, 3.0), (-0.3, 18.0, 14.0, 5.0))  # height, column, row, width
ANGLES = np.pi * np.arange(10) / 10

if __name__ == "__main__":
    import astra

    row, column = np.mgrid[:ROWS, :COLUMNS]
    image = sum(h * np.exp(-((column - x) ** 2 + (row - y) ** 2) / (2 * s**2)) for h, x, y, s in BLOBS)
    volume = astra.create_vol_geom(ROWS, COLUMNS)
    rays = astra.create_proj_geom("parallel", 1.0, DETECTORS, ANGLES)
    found = {}
    for name in ("strip", "linear"):
        matrix = astra.matrix.get(astra.projector.matrix(astra.create_projector(name, rays, volume)))
        found[name] = (matrix @ image.ravel()).reshape(len(ANGLES), DETECTORS).astype("f4")
    np.savez_compressed(Path(__file__).parent / "astra.npz", image=image, **found)
