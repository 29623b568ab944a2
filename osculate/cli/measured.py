"""The data to reconstruct from: a simulated measurement of a picture, or measured data from a file."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from osculate.checks import require_positive, require_whole
from osculate.cli.measurement import PICTURES, Measured, MeasurementOptions, measure_picture
from osculate.cli.operator_options import OPERATORS, OperatorOptions, operator_for
from osculate.inverse import Subsampling, brightness
from osculate.registry import lookup

#: Possible names of the measured array in an .npz file.
ARRAYS = ("data", "sinogram", "y")
#: Other arrays that the file may hold.
BESIDE = ("angles", "noise", "shape", "mask", "truth")


def measured(what: MeasurementOptions, how: OperatorOptions) -> Measured:
    """Measure a picture, or read measured data.

    Raises:
        ValueError: a file that cannot be read, or options that do not go together.
        FileNotFoundError: there is no such file.
    """
    lookup("operator", how.operator, OPERATORS)
    if what.image is None:
        raise ValueError(
            "name the data to reconstruct from: osculate reconstruct FILE, a picture or measured data; or "
            f"{' or '.join(PICTURES)}, which need no file."
        )
    if what.size is not None:
        require_whole("--size", what.size)
    for name in ("noise", "sigma", "scale"):
        if getattr(what, name) is not None:
            require_positive(f"--{name}", getattr(what, name))
    if what.estimate_noise and what.sigma is not None:
        raise ValueError("--sigma gives the noise and --estimate-noise estimates it: choose one.")
    data = Path(what.image).suffix in (".npy", ".npz")
    found = _read(Path(what.image), what, how) if data else measure_picture(what, how)
    return replace(found, noise=None) if what.estimate_noise else found


def _read(path: Path, what: MeasurementOptions, how: OperatorOptions) -> Measured:
    """Read measured data."""
    if what.noise is not None:
        raise ValueError("--noise is that of a picture's measurement; the noise of measured data is --sigma.")
    arrays = _arrays(path)
    names = [name for name in ARRAYS if name in arrays]
    if len(names) != 1:
        raise ValueError(f"{str(path)!r} has arrays {sorted(arrays)}: one must be called {' or '.join(ARRAYS)}.")
    name = names[0]
    if unknown := sorted(set(arrays) - {name, *BESIDE}):
        raise ValueError(
            f"{str(path)!r} has an unknown array {unknown[0]!r}: beside {name!r} there may be {', '.join(BESIDE)}."
        )
    if how.operator == "inpainting" and "mask" not in arrays:
        raise ValueError('measured data of inpainting are an .npz file with "data" and "mask", the pixels seen.')
    if "mask" in arrays and how.operator != "inpainting":
        raise ValueError(f"{str(path)!r} has a mask: use --operator inpainting, not {how.operator!r}.")
    data = _numbers(arrays[name], name)
    truth = _numbers(arrays["truth"], "truth") if "truth" in arrays else None
    if truth is not None and (truth.ndim != 2 or not bool(truth.isfinite().all())):
        raise ValueError(f"the truth must be an image (H, W) without NaN, not of shape {tuple(truth.shape)}.")
    if not data.numel():
        raise ValueError(f"{name!r} in {str(path)!r} has shape {tuple(data.shape)}: it is empty.")
    shape = _shape(data, what, how, arrays, truth)
    operator = operator_for(how, shape, (data, arrays), what.measurement_seed)
    if isinstance(operator, Subsampling) and tuple(data.shape) == operator.image_shape:
        data = operator(data)  # a whole image, of which the mask says what was seen
    if truth is not None and tuple(truth.shape) != operator.image_shape:
        raise ValueError(f"the truth has shape {tuple(truth.shape)}, the reconstruction {operator.image_shape}.")
    sigma = what.sigma
    if sigma is None and "noise" in arrays:
        if np.size(arrays["noise"]) != 1:
            raise ValueError(f"the noise in {str(path)!r} is one standard deviation, not {np.size(arrays['noise'])}.")
        sigma = float(np.asarray(arrays["noise"]).reshape(()))
        require_positive(f"the noise in {str(path)!r} (a standard deviation)", sigma)
    if what.scale is None and not operator.tells_brightness:
        raise ValueError(
            f"the largest value of an image is guessed from a sinogram only, not from data of {how.operator!r}: give "
            "--scale, 1 for example."
        )
    scale = brightness(operator, data) if what.scale is None else what.scale
    return Measured(operator, data, sigma, scale, truth, guessed=what.scale is None)


def _arrays(path: Path) -> Mapping[str, Any]:
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder: name a file.")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}, seen from {str(Path.cwd())!r}.")
    try:
        found = np.load(path, allow_pickle=False)
        return {ARRAYS[0]: found} if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{str(path)!r} cannot be read as a file of NumPy ({error}).") from error


def _numbers(array: Any, name: str) -> Tensor:
    if np.asarray(array).dtype.kind not in "fiub":
        raise ValueError(f"{name!r} must hold real numbers, not {np.asarray(array).dtype}.")
    return torch.from_numpy(np.asarray(array, dtype=np.float32))


def _shape(
    data: Tensor, what: MeasurementOptions, how: OperatorOptions, arrays: Mapping[str, Any], truth: Tensor | None
) -> tuple[int, int]:
    """(H, W) of the image behind some data."""
    sources = {
        "the mask": np.shape(arrays["mask"]) if "mask" in arrays and how.operator == "inpainting" else None,
        "the truth": None if truth is None else tuple(truth.shape),
        "the shape in the file": tuple(np.asarray(arrays["shape"]).reshape(-1).tolist()) if "shape" in arrays else None,
        "--size": None if what.size is None else (what.size, what.size),
    }
    known = {name: shape for name, shape in sources.items() if shape is not None}
    if len(set(known.values())) > 1:
        raise ValueError("the shape of the image is ambiguous: " + ", ".join(f"{n} says {s}" for n, s in known.items()))
    for name, shape in known.items():
        if len(shape) != 2 or not all(side == int(side) and side > 0 for side in shape):
            raise ValueError(f"an image has a shape (H, W), but {name} says {shape}.")
        return int(shape[0]), int(shape[1])
    if data.ndim != 2 and how.operator == "radon":
        raise ValueError(f"a sinogram has two axes, angles and detectors, not shape {tuple(data.shape)}.")
    if how.operator == "radon":
        side = max(1, int(data.shape[1] / 2**0.5))
        return side, side
    if data.ndim == 2 and how.operator == "blur":
        return int(data.shape[0]), int(data.shape[1])
    raise ValueError("the data do not determine the shape of the image: give its side in pixels with --size.")
