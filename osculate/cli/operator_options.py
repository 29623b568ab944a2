"""The operator that the options of the command line name."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from osculate.cli.options import naming
from osculate.inverse import Blur, LinearOperator, Matrix, RayTransform, Subsampling

#: Operators, and the options that are theirs.
OPERATORS: Mapping[str, tuple[str, ...]] = {
    "radon": ("angles", "detectors"),
    "blur": ("blur",),
    "inpainting": ("keep",),
    "matrix": ("matrix",),
}
#: Angles of the rays, where neither options nor data say how many.
ANGLES = 20
#: Standard deviation of a blur, and share of the pixels that inpainting sees, where they are not named.
BLUR, KEEP = 1.5, 0.3


@naming(operators=OPERATORS)
@dataclass(frozen=True)
class OperatorOptions:
    """The measurement operator.

    Args:
        operator: name of the operator, {operators}.
        angles: number of angles of radon, evenly over half a turn; by default 20, or as many as the data have.
        detectors: rays of radon at each angle, one pixel apart; by default as many as cover the diagonal.
        blur: standard deviation of the Gaussian blur in pixels, by default 1.5.
        keep: share of the pixels that inpainting sees, by default .3.
        matrix: file of the matrix, dense (.npy) or sparse (.npz of scipy.sparse), a row for each measurement.
    """

    operator: str = "radon"
    angles: int | None = None
    detectors: int | None = None
    blur: float | None = None
    keep: float | None = None
    matrix: Path | None = None


def operator_for(
    how: OperatorOptions, shape: tuple[int, int], given: tuple[Tensor, Mapping[str, Any]] | None, seed: int
) -> LinearOperator:
    """The operator that the options name, as the data need it.

    Args:
        how: the options.
        shape: (H, W) of the image.
        given: data and the arrays beside them; None where a picture is measured.
        seed: seed of the pixels that inpainting sees.

    Raises:
        ValueError: options and data that do not go together.
    """
    data, arrays = given if given is not None else (None, {})
    for operator, options in OPERATORS.items():
        for name in options:
            if operator != how.operator and getattr(how, name) is not None:
                raise ValueError(f"--{name} goes with --operator {operator}, not with {how.operator!r}.")
    if "angles" in arrays and how.operator != "radon":
        raise ValueError(f"the file has angles, which are those of rays: use --operator radon, not {how.operator!r}.")
    if "mask" in arrays and how.keep is not None:
        raise ValueError("the file has a mask, which says what was seen: leave --keep out.")
    if how.operator == "radon":
        sinogram = tuple(data.shape) if data is not None and data.ndim == 2 else (ANGLES, None)
        angles: Any = sinogram[0] if how.angles is None else how.angles
        if "angles" in arrays:
            found = torch.from_numpy(np.asarray(arrays["angles"], dtype=float))
            if how.angles is not None and found.ndim and found.shape != (how.angles,):
                raise ValueError(
                    f"--angles is {how.angles}, but the file has angles of shape {tuple(found.shape)}: leave it out."
                )
            angles = found if found.ndim else np.asarray(arrays["angles"]).item()
        return RayTransform(shape, angles, sinogram[1] if how.detectors is None else how.detectors)
    if how.operator == "blur":
        return Blur(shape, BLUR if how.blur is None else how.blur)
    if how.operator == "inpainting":
        if "mask" in arrays:
            mask = torch.from_numpy(np.asarray(arrays["mask"], dtype=bool))
            if mask.ndim != 2:
                raise ValueError(f"the mask has shape {tuple(mask.shape)}, not that of an image, (H, W).")
            return Subsampling(mask)
        return Subsampling.random(shape, KEEP if how.keep is None else how.keep, torch.Generator().manual_seed(seed))
    return Matrix(_matrix(how.matrix), shape, None if data is None else tuple(data.shape))


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
