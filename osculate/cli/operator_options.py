"""The operator that the options of the command line name."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from osculate.cli.options import naming
from osculate.inverse import Blur, LinearOperator, Matrix, RayTransform, Subsampling

OPERATORS = ("radon", "blur", "inpainting", "matrix")
#: Angles of the rays, where neither options nor data say how many.
ANGLES = 20


@naming(operators=OPERATORS)
@dataclass(frozen=True)
class OperatorOptions:
    """How an image is measured.

    Args:
        operator: one of {operators}.
        angles: of radon: how many, evenly over half a turn; by default 20, or as many as the data have.
        detectors: of radon: rays at each angle, one pixel apart; by default as many as cover the diagonal.
        blur: standard deviation of the Gaussian in pixels.
        keep: of inpainting: share of the pixels that is seen.
        matrix: a file with the matrix, dense (.npy) or sparse (.npz of scipy.sparse), a row for each measurement.
    """

    operator: str = "radon"
    angles: int | None = None
    detectors: int | None = None
    blur: float = 1.5
    keep: float = 0.3
    matrix: Path | None = None


def operator_for(
    how: OperatorOptions, shape: tuple[int, int], given: tuple[Tensor, Mapping[str, Any]] | None, seed: int
) -> LinearOperator:
    """The operator that the options name, as the data need it.

    Args:
        how: the options.
        shape: (H, W) of the image.
        given: data and the arrays beside them; None where a picture is measured.
        seed: of the pixels that inpainting sees.

    Raises:
        ValueError: options and data that do not go together.
    """
    data, arrays = given if given is not None else (None, {})
    if how.matrix is not None and how.operator != "matrix":
        raise ValueError(f"--matrix goes with --operator matrix, not with {how.operator!r}.")
    if how.operator == "radon":
        sinogram = tuple(data.shape) if data is not None and data.ndim == 2 else (ANGLES, None)
        angles: Any = sinogram[0] if how.angles is None else how.angles
        if "angles" in arrays:
            angles = _angles(arrays["angles"], how.angles)
        return RayTransform(shape, angles, sinogram[1] if how.detectors is None else how.detectors)
    if how.operator == "blur":
        return Blur(shape, how.blur)
    if how.operator == "inpainting":
        if "mask" in arrays:
            return Subsampling(_mask(arrays))
        if data is not None:
            raise ValueError('measured data of inpainting are an .npz file with "data" and "mask", the pixels seen.')
        return Subsampling.random(shape, how.keep, torch.Generator().manual_seed(seed))
    return Matrix(_matrix(how.matrix), shape, None if data is None else tuple(data.shape))


def _angles(found: Any, asked: int | None) -> Tensor:
    angles = torch.from_numpy(np.asarray(found, dtype=float))
    if asked is not None and angles.shape != (asked,):
        raise ValueError(f"--angles is {asked}, but the file has angles of shape {tuple(angles.shape)}: leave it out.")
    if angles.numel() > 1 and float(angles.max() - angles.min()) > 4 * pi:
        raise ValueError(
            f"the angles go from {float(angles.min()):.3g} to {float(angles.max()):.3g}: they are in radians here, and "
            "these look like degrees."
        )
    return angles


def _mask(arrays: Mapping[str, Any]) -> Tensor:
    mask = torch.from_numpy(np.asarray(arrays["mask"], dtype=bool))
    if mask.ndim != 2:
        raise ValueError(f"the mask has shape {tuple(mask.shape)}, not that of an image, (H, W).")
    return mask


def _matrix(path: Path | None) -> Any:
    from scipy.sparse import load_npz

    if path is None:
        raise ValueError("--operator matrix needs --matrix FILE, dense (.npy) or sparse (.npz of scipy.sparse).")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}, seen from {str(Path.cwd())!r}.")
    try:
        return load_npz(path) if path.suffix == ".npz" else np.load(path, allow_pickle=False)
    except (ValueError, OSError, KeyError, EOFError) as error:
        raise ValueError(f"{str(path)!r} cannot be read as a matrix ({error}).") from error
