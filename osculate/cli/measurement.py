"""What is reconstructed: a picture that is measured here, or data that were measured elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from osculate.checks import require_positive
from osculate.cli.options import naming
from osculate.data import rectangles, shepp_logan
from osculate.inverse import Blur, LinearOperator, Matrix, RayTransform, Subsampling, brightness
from osculate.registry import lookup

#: Pictures that need no file.
PICTURES = {"shepp_logan": shepp_logan, "rectangles": rectangles}
OPERATORS = ("radon", "blur", "inpainting", "matrix")
#: Names that the measured array has in an .npz file.
ARRAYS = ("data", "sinogram", "y")
#: Angles, side of a picture that needs no file, and noise, where none are named.
ANGLES, SIDE, NOISE = 20, 64, 0.05


@naming(pictures=PICTURES)
@dataclass(frozen=True)
class MeasurementOptions:
    """What was, or is to be, measured.

    Args:
        image: a picture (.png, .jpg, …, in grey) that is measured here with noise and then reconstructed; one of
            {pictures}, which need no file; or measured data, .npy, or .npz with "data" (or "sinogram"), and "angles"
            in radians, "noise", "shape" and "truth" where they are known. Its name may stand behind the command.
        size: side in pixels, to which a picture is shrunk; of the reconstruction from measured data.
        noise: of a picture's measurement, its standard deviation as a share of the mean absolute value; by default
            .05.
        sigma: of measured data, the standard deviation of their noise in their own units; by default estimated.
        scale: largest value of the image to be found; by default 1 for pictures, and guessed for measured data.
        measurement_seed: of the noise, of random pictures and of the pixels that inpainting sees.
    """

    image: str | None = None
    size: int | None = None
    noise: float | None = None
    sigma: float | None = None
    scale: float | None = None
    measurement_seed: int = 0


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


@dataclass(frozen=True)
class Measured:
    """A measurement, ready to be reconstructed.

    Attributes:
        operator: A.
        data: y.
        noise: σ; None where it is not known.
        scale: largest value of the image.
        truth: the image, where it is known.
    """

    operator: LinearOperator
    data: Tensor
    noise: float | None
    scale: float
    truth: Float[Tensor, "H W"] | None


def measured(what: MeasurementOptions, how: OperatorOptions) -> Measured:
    """Measure a picture, or read what was measured.

    Raises:
        ValueError: a file that cannot be read, or options that do not go together.
        FileNotFoundError: there is no such file.
    """
    lookup("operator", how.operator, dict.fromkeys(OPERATORS))
    if what.image is None:
        raise ValueError(
            "name what is to be reconstructed: osculate reconstruct FILE, a picture or measured data; or "
            f"{' or '.join(PICTURES)}, which need no file."
        )
    if Path(what.image).suffix in (".npy", ".npz"):
        return _read(Path(what.image), what, how)
    if what.sigma is not None:
        raise ValueError("--sigma is the noise of measured data; the noise of a picture's measurement is --noise.")
    truth = _picture(what)
    operator = _operator(how, (truth.shape[0], truth.shape[1]), None, what.measurement_seed)
    share = NOISE if what.noise is None else what.noise
    require_positive("--noise (a share of the mean absolute measurement)", share)
    clean = operator(truth)
    sigma = share * float(clean.abs().mean())
    if not sigma > 0:
        raise ValueError(f"the picture {what.image!r} is black: there is nothing to measure.")
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(what.measurement_seed))
    return Measured(operator, clean + sigma * noise, sigma, what.scale or 1.0, truth)


def _picture(what: MeasurementOptions) -> Float[Tensor, "H W"]:
    """In grey, values in [0, 1]."""
    name = str(what.image)
    if name in PICTURES:
        side = what.size or SIDE
        if name == "shepp_logan":
            return shepp_logan(side)
        return rectangles(side, generator=torch.Generator().manual_seed(what.measurement_seed))
    if not Path(name).is_file():
        raise FileNotFoundError(
            f"there is no file {name!r}, seen from {str(Path.cwd())!r}: name a picture, measured data (.npy, .npz), or "
            f"{' or '.join(PICTURES)}."
        )
    try:
        with Image.open(name) as file:
            pixels = torch.from_numpy(np.asarray(file.convert("F"), dtype=np.float32).copy())
            depth = 65535.0 if file.mode.startswith("I") else 1.0 if file.mode == "F" else 255.0
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"{name!r} cannot be read as a picture ({error}).") from error
    image = (pixels / depth).clamp(0, 1)
    if what.size is None:
        return image
    longest = max(image.shape)
    if what.size > longest:
        raise ValueError(
            f"--size {what.size}: the picture has {longest} pixels at its longer side and is not enlarged."
        )
    height, width = (max(1, round(side * what.size / longest)) for side in image.shape)
    return F.adaptive_avg_pool2d(image[None, None], (height, width))[0, 0]


def _read(path: Path, what: MeasurementOptions, how: OperatorOptions) -> Measured:
    """Data that were measured elsewhere."""
    if what.noise is not None:
        raise ValueError("--noise is that of a picture's measurement; the noise of measured data is --sigma.")
    arrays = _arrays(path)
    name = next((name for name in ARRAYS if name in arrays), None)
    if name is None:
        raise ValueError(f"{str(path)!r} has arrays {sorted(arrays)}: one must be called {' or '.join(ARRAYS)}.")
    data = torch.from_numpy(np.asarray(arrays[name], dtype=np.float32))
    truth = torch.from_numpy(np.asarray(arrays["truth"], dtype=np.float32)) if "truth" in arrays else None
    shape = _shape(data, what, how, arrays, truth)
    operator = _operator(how, shape, (data, arrays), what.measurement_seed)
    known = float(arrays["noise"]) if "noise" in arrays else None
    sigma = known if what.sigma is None else what.sigma
    if sigma is not None:
        require_positive("--sigma (the standard deviation of the noise)", sigma)
    scale = brightness(operator, data) if what.scale is None else what.scale
    require_positive("--scale (the largest value of the image)", scale)
    if truth is not None and tuple(truth.shape) != operator.image_shape:
        raise ValueError(f"the truth has shape {tuple(truth.shape)}, the reconstruction {operator.image_shape}.")
    return Measured(operator, data, sigma, scale, truth)


def _arrays(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}, seen from {str(Path.cwd())!r}.")
    try:
        found = np.load(path, allow_pickle=False)
        return {ARRAYS[0]: found} if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{str(path)!r} cannot be read as a file of NumPy ({error}).") from error


def _shape(
    data: Tensor, what: MeasurementOptions, how: OperatorOptions, arrays: Mapping[str, Any], truth: Tensor | None
) -> tuple[int, int]:
    """(H, W) of the image behind some data."""
    if what.size is not None:
        return what.size, what.size
    if truth is not None:
        return int(truth.shape[0]), int(truth.shape[1])
    if "shape" in arrays:
        height, width = (int(side) for side in np.asarray(arrays["shape"]).reshape(-1))
        return height, width
    if data.ndim == 2 and how.operator == "radon":
        side = max(1, int(data.shape[1] / 2**0.5))
        return side, side
    if data.ndim == 2 and how.operator == "blur":
        return int(data.shape[0]), int(data.shape[1])
    raise ValueError("say with --size how many pixels a side of the image has: the data do not tell.")


def _operator(
    how: OperatorOptions, shape: tuple[int, int], given: tuple[Tensor, Mapping[str, Any]] | None, seed: int
) -> LinearOperator:
    data, arrays = given if given is not None else (None, {})
    if how.operator == "radon":
        sinogram = tuple(data.shape) if data is not None and data.ndim == 2 else (ANGLES, None)
        angles: Any = sinogram[0] if how.angles is None else how.angles
        if "angles" in arrays:
            angles = torch.from_numpy(np.asarray(arrays["angles"], dtype=float))
        return RayTransform(shape, angles, sinogram[1] if how.detectors is None else how.detectors)
    if how.operator == "blur":
        return Blur(shape, how.blur)
    if how.operator == "inpainting":
        if "mask" in arrays:
            return Subsampling(torch.from_numpy(np.asarray(arrays["mask"], dtype=bool)))
        if data is not None:
            raise ValueError('measured data of inpainting are an .npz file with "data" and "mask", the pixels seen.')
        return Subsampling.random(shape, how.keep, torch.Generator().manual_seed(seed))
    return Matrix(_matrix(how.matrix), shape, None if data is None else tuple(data.shape))


def _matrix(path: Path | None) -> Any:
    from scipy.sparse import load_npz

    if path is None:
        raise ValueError("--operator matrix needs --matrix FILE, dense (.npy) or sparse (.npz of scipy.sparse).")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}, seen from {str(Path.cwd())!r}.")
    try:
        return load_npz(path) if path.suffix == ".npz" else np.load(path, allow_pickle=False)
    except (ValueError, OSError, KeyError) as error:
        raise ValueError(f"{str(path)!r} cannot be read as a matrix ({error}).") from error
