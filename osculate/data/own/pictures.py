"""Folders of images: one folder for each class, or images without labels."""

import io
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from osculate.checks import require_library
from osculate.data.own.content import Content, Wanted, listed
from osculate.data.own.parts import NAMES as PARTS
from osculate.data.own.tables import NO_TARGET
from osculate.memory import free, readable

#: Endings of images, and the decoders of Pillow that may read them.
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "WEBP")
#: Pixels of one image at most.
LARGEST = 50_000_000
#: Share of the free memory that images may take as floating-point numbers.
SHARE = 0.5
#: Modes of Pillow: grey, and those with more than eight bits.
GREY, DEEP = ("1", "L", "LA"), ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")
#: EXIF tag of the orientation, and its values that turn an image by 90°.
ORIENTATION, TURNED = 0x0112, (5, 6, 7, 8)
#: Name of the target.
FOLDER = "folder"
#: An image as a file or as its bytes, with its name in messages.
Picture: TypeAlias = tuple[str, Path | bytes]


def is_pictures(folder: Path) -> bool:
    """True for a folder that holds images, directly or in folders below it."""
    return any(path.suffix.lower() in ENDINGS for path in folder.rglob("*"))


def folder_content(folder: Path, wanted: Wanted) -> Content:
    """The images of a folder. Folders in it are classes, or parts named train, validation and test that hold these.

    Raises:
        ValueError: folders are nested otherwise, or an image is damaged, too large or of a kind that is not read.
    """
    files, others = _files(folder)
    names = [str(path.relative_to(folder)) for path, _, _ in files]
    pictures = [(str(path), path) for path, _, _ in files]
    words, parts = ([each[place] for each in files] for place in (1, 2))
    labelled = wanted.targets and words[0] is not None and wanted.target not in ((NO_TARGET,), ())
    if others:
        warnings.warn(f"{folder} has files that are no images, which are left out: {listed(others, 3)}.", stacklevel=2)
    return Content(
        str(folder),
        decoded(pictures, wanted, str(folder)),
        np.array(words, dtype=object) if labelled else None,
        (FOLDER,) if labelled else (),
        split=np.array(parts, dtype=object) if parts[0] is not None and wanted.parts else None,
        labels={"file": names},
    )


def _files(folder: Path) -> tuple[list[tuple[Path, str | None, str | None]], list[str]]:
    """Images with class and part, and the names of other files."""
    inside = {path.name.lower(): path for path in _visible(folder) if path.is_dir()}
    if inside and set(inside) <= PARTS.keys() and "train" in {PARTS[name] for name in inside}:
        found = [(name, *_labelled(path)) for name, path in sorted(inside.items())]
        kinds = {name: {word is not None for _, word in files} for name, files, _ in found}
        if len(set().union(*kinds.values())) > 1:
            raise ValueError(f"some parts of {folder} have folders of classes and others have none: give all the same.")
        return (
            [(path, word, PARTS[name]) for name, files, _ in found for path, word in files],
            [each for _, _, others in found for each in others],
        )
    files, others = _labelled(folder)
    return [(path, word, None) for path, word in files], others


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith((".", "__")))


def _labelled(folder: Path) -> tuple[list[tuple[Path, str | None]], list[str]]:
    """Images of one part with their classes, and the names of other files."""
    inside = _visible(folder)
    images = [path for path in inside if path.is_file() and path.suffix.lower() in ENDINGS]
    others = [path.name for path in inside if path.is_file() and path.suffix.lower() not in ENDINGS]
    classes = [path for path in inside if path.is_dir()]
    if images and classes:
        raise ValueError(
            f"{folder} holds images and folders ({listed([path.name for path in classes], 3)}): move each image into "
            "the folder of its class, or name a folder that holds images only."
        )
    if images:
        return [(path, None) for path in images], others
    if len(classes) == 1:
        raise ValueError(
            f"{folder} holds one folder only, {classes[0].name!r}: add a folder for each other class, or for images "
            f"without labels name {str(classes[0])!r}."
        )
    found: list[tuple[Path, str | None]] = []
    for each in classes:
        own = [path for path in _visible(each) if path.is_file() and path.suffix.lower() in ENDINGS]
        if not own:
            deeper = [path.name for path in _visible(each) if path.is_dir()]
            what = f"folders ({listed(deeper, 3)})" if deeper else "no images"
            raise ValueError(
                f"the folder {str(each)!r} holds {what}: put the images of each class directly into its folder, or "
                "remove it."
            )
        others += [path.name for path in _visible(each) if path.is_file() and path not in own]
        found += [(path, each.name) for path in own]
    if not found:
        raise ValueError(f"{folder} holds no images: accepted are {', '.join(ENDINGS)}.")
    return found, others


def decoded(pictures: Iterable[Picture], wanted: Wanted, source: str) -> np.ndarray:
    """Images as uint8 (N, channels, height, width), turned as their EXIF data say.

    Raises:
        ValueError: one is damaged, too large, or has more than eight bits a channel; or their sizes differ and none is
            wanted.
    """
    require_library("PIL", "images")
    pictures = list(pictures)
    headers = [_opened(each, _header) for each in pictures]
    sizes = {size for size, _ in headers}
    if len(sizes) > 1 and wanted.image_size is None:
        small, large = min(sizes, key=np.prod), max(sizes, key=np.prod)
        raise ValueError(
            f"the images in {source} have {len(sizes)} sizes, from {small[0]} × {small[1]} to {large[0]} × {large[1]} "
            "pixels: pass image_size=64 (--image-size 64) to crop and scale all to 64 × 64."
        )
    height, width = wanted.image_size or next(iter(sizes))
    channels = wanted.channels or (1 if all(mode in GREY for _, mode in headers) else 3)
    bytes_wanted, available = 4 * len(pictures) * channels * height * width, free(torch.device("cpu"))
    if bytes_wanted > SHARE * available:
        raise ValueError(
            f"{len(pictures):,} images of {height} × {width} pixels take {readable(bytes_wanted)}, and "
            f"{readable(available)} of memory are free: pass a smaller image_size= (--image-size)."
        )
    result = np.empty((len(pictures), channels, height, width), np.uint8)
    for number, each in enumerate(pictures):
        result[number] = _opened(each, lambda image: _pixels(image, channels, wanted.image_size))
    return result


def _opened(picture: Picture, read: Callable[[Any], Any]) -> Any:
    """The result of a function of an image; errors of the decoder name the image."""
    from PIL import Image

    name, source = picture
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
            if image.width * image.height > LARGEST:
                raise ValueError(
                    f"{name} has {image.width} × {image.height} pixels, more than {LARGEST:,}: scale it down first."
                )
            if image.mode in DEEP:
                raise ValueError(f"{name} has more than 8 bits a channel: convert it to 8 bits, or pass an array.")
            return read(image)
    except (OSError, SyntaxError, EOFError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ValueError(f"{name} cannot be read as an image ({str(error).rstrip('.')}): mend or remove it.") from error


def _header(image: Any) -> tuple[tuple[int, int], str]:
    """Height and width of the turned image, and its mode; a palette counts as colour."""
    width, height = image.size
    turned = image.getexif().get(ORIENTATION) in TURNED
    return ((width, height) if turned else (height, width)), image.mode


def _pixels(image: Any, channels: int, size: tuple[int, int] | None) -> np.ndarray:
    from PIL import ImageOps

    image = ImageOps.exif_transpose(image).convert("L" if channels == 1 else "RGB")
    if size is not None:
        image = ImageOps.fit(image, size[::-1])
    pixels = np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1)
