"""Measurements: of a picture, simulated here, or read from a file."""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from osculate.cli.operator_options import OperatorOptions, operator_for
from osculate.cli.options import naming
from osculate.data import rectangles, shepp_logan
from osculate.inverse import LinearOperator

#: Pictures that need no file.
PICTURES = {"shepp_logan": shepp_logan, "rectangles": rectangles}
#: Side of a picture that needs no file, and noise, where none are named.
SIDE, NOISE = 64, 0.05
#: Pixels of a picture that is taken as it is.
LARGEST = 512**2
#: Share of white below which the brightest pixel of a picture is dark enough for a warning.
DARK = 0.25


@naming(pictures=PICTURES)
@dataclass(frozen=True)
class MeasurementOptions:
    """The measurement.

    Args:
        image: a picture (.png, .jpg, …, in grey) that is measured here with noise and then reconstructed; one of
            {pictures}, which need no file; or measured data, .npy, or .npz with "data" (or "sinogram"), and "angles"
            in radians, "noise", "shape", "mask" and "truth" where they are known. The name needs no --image.
        size: longer side in pixels, to which a picture is shrunk (64 for those that need no file); side of the
            reconstruction from measured data, by default what the detectors cover.
        noise: standard deviation of a simulated measurement's noise, as a share of its mean absolute value; by
            default .05.
        sigma: standard deviation of the noise of measured data, in their units; by default estimated.
        estimate_noise: find the noise from the data, though it is known.
        scale: largest value of the image; by default 1 for pictures, whose values it multiplies, and guessed for a
            measured sinogram.
        measurement_seed: seed of the noise, of random pictures and of the pixels that inpainting sees.
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
        noise: σ; None where it is not known.
        scale: largest value of the image.
        truth: the image, where it is known.
        guessed: True if the scale was guessed from the data.
    """

    operator: LinearOperator
    data: Tensor
    noise: float | None
    scale: float
    truth: Float[Tensor, "H W"] | None
    guessed: bool = False


def measure_picture(what: MeasurementOptions, how: OperatorOptions) -> Measured:
    """Measure a picture with noise.

    Raises:
        ValueError: a file that is no picture, is black or too large.
        FileNotFoundError: there is no such file.
    """
    if what.sigma is not None:
        raise ValueError("--sigma is the noise of measured data; the noise of a picture's measurement is --noise.")
    scale = 1.0 if what.scale is None else what.scale
    truth = scale * _picture(what)
    operator = operator_for(how, (truth.shape[0], truth.shape[1]), None, what.measurement_seed)
    clean = operator(truth)
    sigma = (NOISE if what.noise is None else what.noise) * float(clean.abs().mean())
    if not sigma > 0:
        raise ValueError(f"the picture {what.image!r} is black: there is nothing to measure.")
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(what.measurement_seed))
    return Measured(operator, clean + sigma * noise, sigma, scale, truth)


def _picture(what: MeasurementOptions) -> Float[Tensor, "H W"]:
    """The picture in grey, with values in [0, 1]."""
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
            depth = 65535.0 if file.mode.startswith("I") else 1.0 if file.mode == "F" else 255.0
            opaque: Image.Image = file
            if file.has_transparency_data:
                clear = file.convert("RGBA")
                opaque = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
            pixels = torch.from_numpy(np.asarray(opaque.convert("F"), dtype=np.float32).copy())
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"{name!r} cannot be read as a picture ({error}).") from error
    image = (pixels / depth).clamp(0, 1)
    if 0 < float(image.max()) < DARK:
        warnings.warn(
            f"the brightest pixel of {name!r} has {100 * float(image.max()):.1f} % of white: stretch its values, "
            "or its contrast is small beside the range that an image may have.",
            stacklevel=2,
        )
    if what.size is None and image.numel() > LARGEST:
        raise ValueError(
            f"{name!r} has {image.shape[0]} × {image.shape[1]} pixels, which would take hours: shrink it with --size, "
            "to 128 for example."
        )
    if what.size is None:
        return image
    longest = max(image.shape)
    if what.size > longest:
        raise ValueError(
            f"--size {what.size}: the picture has {longest} pixels at its longer side and is not enlarged."
        )
    height, width = (max(1, round(side * what.size / longest)) for side in image.shape)
    return F.adaptive_avg_pool2d(image[None, None], (height, width))[0, 0]
