"""Measurements to reconstruct from: simulated from a picture, or read from a file."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from osculate.checks import require_library, require_positive, require_whole
from osculate.cli.options import naming
from osculate.data import rectangles, shepp_logan
from osculate.inverse import Blur, LinearOperator, Matrix, RayTransform, Subsampling, brightness
from osculate.registry import lookup

#: Operators and their options.
OPERATORS: Mapping[str, tuple[str, ...]] = {
    "radon": ("angles", "detectors"),
    "blur": ("blur",),
    "inpainting": ("keep",),
    "matrix": ("matrix",),
}
#: Default number of angles of the rays.
ANGLES = 20
#: Default standard deviation of a blur, and default share of observed pixels in inpainting.
BLUR, KEEP = 1.5, 0.3


@naming(operators=OPERATORS)
@dataclass(frozen=True)
class OperatorOptions:
    """The measurement operator.

    Args:
        operator: Name of the operator, {operators}.
        angles: Number of angles of radon, evenly over half a turn; by default 20, or the number in the data.
        detectors: Number of rays of radon at each angle, one pixel apart; by default enough to cover the diagonal.
        blur: Standard deviation of the Gaussian blur in pixels, by default 1.5.
        keep: Share of the pixels that inpainting observes, by default .3.
        matrix: File of the matrix, dense (.npy) or sparse (.npz of scipy.sparse), a row for each measurement; for
            matrix alone, by default none.
    """

    operator: str = "radon"
    angles: int | None = None
    detectors: int | None = None
    blur: float | None = None
    keep: float | None = None
    matrix: Path | None = None


def operator_for(
    chosen: OperatorOptions, shape: tuple[int, int], given: tuple[Tensor, Mapping[str, Any]] | None, seed: int
) -> LinearOperator:
    """The operator for the options and the data.

    Args:
        chosen: The options.
        shape: (H, W) of the image.
        given: Data and the other arrays of the file; None if a picture is measured.
        seed: Seed of the observed pixels of inpainting.

    Raises:
        ValueError: options and data are incompatible.
    """
    data, arrays = given if given is not None else (None, {})
    for operator, options in OPERATORS.items():
        for name in options:
            if operator != chosen.operator and getattr(chosen, name) is not None:
                raise ValueError(f"--{name} goes with --operator {operator}, not with {chosen.operator!r}.")
    if "angles" in arrays and chosen.operator != "radon":
        raise ValueError(f"the file has angles of rays: use --operator radon, not {chosen.operator!r}.")
    if "mask" in arrays and chosen.keep is not None:
        raise ValueError("the file has a mask of the observed pixels: leave --keep out.")
    if chosen.operator == "radon":
        sinogram = tuple(data.shape) if data is not None and data.ndim == 2 else (ANGLES, None)
        angles: Any = sinogram[0] if chosen.angles is None else chosen.angles
        if "angles" in arrays:
            found = torch.from_numpy(np.asarray(arrays["angles"], dtype=float))
            if chosen.angles is not None and found.ndim and found.shape != (chosen.angles,):
                raise ValueError(
                    f"--angles is {chosen.angles}, but the file has angles of shape {tuple(found.shape)}: leave it out."
                )
            angles = found if found.ndim else np.asarray(arrays["angles"]).item()
        return RayTransform(shape, angles, sinogram[1] if chosen.detectors is None else chosen.detectors)
    if chosen.operator == "blur":
        return Blur(shape, BLUR if chosen.blur is None else chosen.blur)
    if chosen.operator == "inpainting":
        if "mask" in arrays:
            return Subsampling(np.asarray(arrays["mask"], dtype=bool))
        return Subsampling.random(
            shape, KEEP if chosen.keep is None else chosen.keep, torch.Generator().manual_seed(seed)
        )
    if chosen.matrix is None:
        raise ValueError("--operator matrix needs --matrix FILE, dense (.npy) or sparse (.npz of scipy.sparse).")
    return Matrix(_loaded(chosen.matrix, "matrix"), shape, None if data is None else tuple(data.shape))


def _loaded(path: Path, kind: str) -> Any:
    """The content of a .npy or .npz file; of a sparse matrix for the kind "matrix"."""
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder: name a file.")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r} relative to {str(Path.cwd())!r}.")
    try:
        if kind == "matrix" and path.suffix == ".npz":
            from scipy.sparse import load_npz

            return load_npz(path)
        found = np.load(path, allow_pickle=False)
        return found if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
    except (ValueError, OSError, KeyError, EOFError) as error:
        raise ValueError(f"{str(path)!r} cannot be read as a {kind} ({error}).") from error


#: Pictures that need no file.
PICTURES = {"shepp_logan": shepp_logan, "rectangles": rectangles}
#: Default side of a picture that needs no file, and default noise.
SIDE, NOISE = 64, 0.05
#: Largest number of pixels of a picture without --size.
LARGEST = 512**2
#: Share of white below which the brightest pixel of a picture is dark enough for a warning.
DARK = 0.25


@naming(pictures=PICTURES)
@dataclass(frozen=True)
class MeasurementOptions:
    """The measurement.

    Args:
        image: Picture (.png, .jpg, …, in grey), from which a noisy measurement is simulated; {pictures}, which need
            no file; or measured data, .npy, or .npz with "data" (or "sinogram"), and, by default without, "angles" in
            radians, "noise", "shape", "mask" and "truth".
        size: Longer side in pixels to which a picture is shrunk (64 for those that need no file); for measured data
            the side of the reconstruction, by default the width of the detectors.
        noise: Standard deviation of a simulated measurement's noise, relative to its mean absolute value; by
            default .05.
        sigma: Standard deviation of the noise of measured data, in their units; by default estimated.
        estimate_noise: Estimate the noise from the data even if it is known.
        scale: Largest value of the image; by default 1 for pictures, whose values it multiplies, and guessed for a
            measured sinogram.
        measurement_seed: Seed of the noise, of random pictures and of the observed pixels of inpainting.
    """

    image: str | None = None
    size: int | None = None
    noise: float | None = None
    sigma: float | None = None
    estimate_noise: bool = False
    scale: float | None = None
    measurement_seed: int = 0


@dataclass(frozen=True)
class Measured:
    """A measurement, ready to be reconstructed.

    Attributes:
        operator: A.
        data: y.
        noise: σ; None if unknown.
        scale: Largest value of the image.
        truth: The image; None if unknown.
        guessed: True if the scale was guessed from the data.
    """

    operator: LinearOperator
    data: Tensor
    noise: float | None
    scale: float
    truth: Float[Tensor, "H W"] | None
    guessed: bool = False


def measure_picture(measurement: MeasurementOptions, chosen: OperatorOptions) -> Measured:
    """Measure a picture with noise.

    Raises:
        ValueError: the file is not a picture, is black or is too large.
        FileNotFoundError: the file does not exist.
    """
    if measurement.sigma is not None:
        raise ValueError("--sigma is the noise of measured data; the noise of a picture's measurement is --noise.")
    scale = 1.0 if measurement.scale is None else measurement.scale
    truth = scale * _picture(measurement)
    operator = operator_for(chosen, (truth.shape[0], truth.shape[1]), None, measurement.measurement_seed)
    clean = operator(truth)
    sigma = (NOISE if measurement.noise is None else measurement.noise) * float(clean.abs().mean())
    if not sigma > 0:
        raise ValueError(f"the picture {measurement.image!r} is black: there is nothing to measure.")
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(measurement.measurement_seed))
    return Measured(operator, clean + sigma * noise, sigma, scale, truth)


def _picture(measurement: MeasurementOptions) -> Float[Tensor, "H W"]:
    """The picture in grey, with values in [0, 1]."""
    name = str(measurement.image)
    if name in PICTURES:
        side = measurement.size or SIDE
        if name == "shepp_logan":
            return shepp_logan(side)
        return rectangles(side, generator=torch.Generator().manual_seed(measurement.measurement_seed))
    if not Path(name).is_file():
        raise FileNotFoundError(
            f"there is no file {name!r} relative to {str(Path.cwd())!r}: name a picture, measured data (.npy, .npz), "
            f"or {' or '.join(PICTURES)}."
        )
    require_library("PIL", "image files")
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(name) as file:
            depth = 65535.0 if file.mode.startswith("I") else 1.0 if file.mode == "F" else 255.0
            opaque: Image.Image = file
            if file.has_transparency_data:
                clear = file.convert("RGBA")
                opaque = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
            pixels = torch.from_numpy(np.asarray(opaque.convert("F"), dtype=np.float32).copy())
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"{name!r} cannot be read as a picture ({error}): name a picture, or an .npz file.") from error
    image = (pixels / depth).clamp(0, 1)
    if 0 < float(image.max()) < DARK:
        warnings.warn(
            f"the brightest pixel of {name!r} has {100 * float(image.max()):.1f} % of white: stretch its values, "
            "as otherwise its contrast is small relative to the range of an image.",
            stacklevel=2,
        )
    if measurement.size is None and image.numel() > LARGEST:
        raise ValueError(
            f"{name!r} has {image.shape[0]} × {image.shape[1]} pixels, which would take hours: shrink it with --size, "
            "to 128 for example."
        )
    if measurement.size is None:
        return image
    longest = max(image.shape)
    if measurement.size > longest:
        raise ValueError(
            f"--size {measurement.size}: the picture has {longest} pixels at its longer side and is not enlarged."
        )
    height, width = (max(1, round(side * measurement.size / longest)) for side in image.shape)
    return F.adaptive_avg_pool2d(image[None, None], (height, width))[0, 0]


#: Possible names of the measured array in an .npz file.
ARRAYS = ("data", "sinogram", "y")
#: Other arrays that the file may hold.
BESIDE = ("angles", "noise", "shape", "mask", "truth")


def measured(measurement: MeasurementOptions, chosen: OperatorOptions) -> Measured:
    """Measure a picture, or read measured data.

    Raises:
        ValueError: the file cannot be read, or options are incompatible.
        FileNotFoundError: the file does not exist.
    """
    lookup("operator", chosen.operator, OPERATORS)
    if measurement.image is None:
        raise ValueError(
            "name the data to reconstruct from: osculate reconstruct FILE, a picture or measured data; or "
            f"{' or '.join(PICTURES)}, which need no file."
        )
    if measurement.size is not None:
        require_whole("--size", measurement.size)
    for name in ("noise", "sigma", "scale"):
        if getattr(measurement, name) is not None:
            require_positive(f"--{name}", getattr(measurement, name))
    if measurement.estimate_noise and measurement.sigma is not None:
        raise ValueError("--sigma gives the noise and --estimate-noise estimates it: choose one.")
    data = Path(measurement.image).suffix in (".npy", ".npz")
    found = _read(Path(measurement.image), measurement, chosen) if data else measure_picture(measurement, chosen)
    return replace(found, noise=None) if measurement.estimate_noise else found


def _read(path: Path, measurement: MeasurementOptions, chosen: OperatorOptions) -> Measured:
    """Read measured data."""
    if measurement.noise is not None:
        raise ValueError("--noise is the noise of a picture's measurement; the noise of measured data is --sigma.")
    content = _loaded(path, "file of NumPy")
    arrays: Mapping[str, Any] = content if isinstance(content, dict) else {ARRAYS[0]: content}
    names = [name for name in ARRAYS if name in arrays]
    if len(names) != 1:
        raise ValueError(f"{str(path)!r} has arrays {sorted(arrays)}: one must be called {' or '.join(ARRAYS)}.")
    name = names[0]
    if unknown := sorted(set(arrays) - {name, *BESIDE}):
        raise ValueError(
            f"{str(path)!r} has an unknown array {unknown[0]!r}: besides {name!r} it may hold {', '.join(BESIDE)}."
        )
    if chosen.operator == "inpainting" and "mask" not in arrays:
        raise ValueError('measured data of inpainting are an .npz file with "data" and "mask", the observed pixels.')
    if "mask" in arrays and chosen.operator != "inpainting":
        raise ValueError(f"{str(path)!r} has a mask: use --operator inpainting, not {chosen.operator!r}.")
    data = _numbers(arrays[name], name)
    truth = _numbers(arrays["truth"], "truth") if "truth" in arrays else None
    if truth is not None and (truth.ndim != 2 or not bool(truth.isfinite().all())):
        raise ValueError(f"the truth must be an image (H, W) without NaN, not of shape {tuple(truth.shape)}.")
    if not data.numel():
        raise ValueError(f"{name!r} in {str(path)!r} has shape {tuple(data.shape)}: it is empty.")
    shape = _shape(data, measurement, chosen, arrays, truth)
    operator = operator_for(chosen, shape, (data, arrays), measurement.measurement_seed)
    if isinstance(operator, Subsampling) and tuple(data.shape) == operator.image_shape:
        data = operator(data)  # a whole image, of which the mask selects the observed pixels
    if truth is not None and tuple(truth.shape) != operator.image_shape:
        raise ValueError(f"the truth has shape {tuple(truth.shape)}, the reconstruction {operator.image_shape}.")
    sigma = measurement.sigma
    if sigma is None and "noise" in arrays:
        if np.size(arrays["noise"]) != 1:
            raise ValueError(f"the noise in {str(path)!r} is one standard deviation, not {np.size(arrays['noise'])}.")
        sigma = float(np.asarray(arrays["noise"]).reshape(()))
        require_positive(f"the noise in {str(path)!r} (a standard deviation)", sigma)
    if measurement.scale is None and not operator.determines_brightness:
        raise ValueError(
            f"the largest value of an image is guessed from a sinogram only, not from data of {chosen.operator!r}: "
            "give --scale, 1 for example."
        )
    scale = brightness(operator, data) if measurement.scale is None else measurement.scale
    return Measured(operator, data, sigma, scale, truth, guessed=measurement.scale is None)


def _numbers(array: Any, name: str) -> Tensor:
    if np.asarray(array).dtype.kind not in "fiub":
        raise ValueError(f"{name!r} must hold real numbers, not {np.asarray(array).dtype}.")
    return torch.from_numpy(np.asarray(array, dtype=np.float32))


def _shape(
    data: Tensor,
    measurement: MeasurementOptions,
    chosen: OperatorOptions,
    arrays: Mapping[str, Any],
    truth: Tensor | None,
) -> tuple[int, int]:
    """(H, W) of the image for the data."""
    sources = {
        "the mask": np.shape(arrays["mask"]) if "mask" in arrays and chosen.operator == "inpainting" else None,
        "the truth": None if truth is None else tuple(truth.shape),
        "the shape in the file": tuple(np.asarray(arrays["shape"]).reshape(-1).tolist()) if "shape" in arrays else None,
        "--size": None if measurement.size is None else (measurement.size, measurement.size),
    }
    known = {name: shape for name, shape in sources.items() if shape is not None}
    if len(set(known.values())) > 1:
        raise ValueError("the shape of the image is ambiguous: " + ", ".join(f"{n} says {s}" for n, s in known.items()))
    for name, shape in known.items():
        if len(shape) != 2 or not all(side == int(side) and side > 0 for side in shape):
            raise ValueError(f"an image has a shape (H, W), but {name} says {shape}.")
        return int(shape[0]), int(shape[1])
    if data.ndim != 2 and chosen.operator == "radon":
        raise ValueError(f"a sinogram has two axes, angles and detectors, not shape {tuple(data.shape)}.")
    if chosen.operator == "radon":
        side = max(1, int(data.shape[1] / 2**0.5))
        return side, side
    if data.ndim == 2 and chosen.operator == "blur":
        return int(data.shape[0]), int(data.shape[1])
    raise ValueError("the data do not determine the shape of the image: give its side in pixels with --size.")
