"""Colour photographs: CIFAR-10 and CIFAR-100, Street View House Numbers, and CelebA."""

import io
import re
import tarfile
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from osculate.checks import require_library
from osculate.data.dataset import Part, Request, Source, as_inputs
from osculate.data.files import Download, find, read_npz

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

#: The original in its binary version: labels and bytes, without the pickled objects of the Python version.
ORIGINAL = Download("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530")
BATCHES = (tuple(f"data_batch_{number}.bin" for number in range(1, 6)), ("test_batch.bin",))
ORIGINAL_100 = Download("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8")
#: One row of a batch: labels, then the red, green and blue values of 32 × 32 pixels.
PIXELS = 3 * 32 * 32

JPEG_FORMAT = (
    "a zip archive of 32 x 32 JPEG files named <index>_<class>.jpg: no public original is known with a checksum, and"
    " 'cifar10' is the lossless set"
)
#: The JPEG images of CIFAR-10 in circulation have this quality, Pillow's default, and 4:2:0 chroma subsampling.
JPEG_QUALITY = 75

SVHN_ORIGINALS = {
    "train": Download("https://ufldl.stanford.edu/housenumbers/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
    "test": Download("https://ufldl.stanford.edu/housenumbers/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
}

CELEBA_FORMAT = "an .npz archive with X (n, 64, 64, 3), attr and attr_names; CelebA allows non-commercial research only"


def cifar10(request: Request) -> Source:
    """CIFAR-10 with its own training and test parts (Krizhevsky 2009).

    A reduced copy, ``cifar10/cifar10_train.npz`` and ``cifar10_test.npz`` with ``X`` (N, 32, 32, 3) and ``y``, is
    used where it is there; else the original ``cifar-10-binary.tar.gz`` with 50,000 and 10,000 images.
    """
    with suppress(FileNotFoundError):  # the original is searched below, with an error that says what to do
        arrays = [read_npz(request.find(f"cifar10/cifar10_{part}.npz"), "X", "y") for part in ("train", "test")]
        train, test = (
            (torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(y).long()) for x, y in arrays
        )
        return Source(train, test, CLASSES)
    describe = "the original archive of CIFAR-10 in its binary version"
    path = request.find("cifar10/cifar-10-binary.tar.gz", describe, ORIGINAL)
    train, test = (_original(path, "cifar-10-batches-bin", batches) for batches in BATCHES)
    return Source(train, test, CLASSES)


def cifar100(request: Request) -> Source:
    """CIFAR-100 with its fine labels, 50,000 and 10,000 images, from ``cifar-100-binary.tar.gz`` (Krizhevsky 2009)."""
    describe = "the original archive of CIFAR-100 in its binary version"
    path = request.find("cifar100/cifar-100-binary.tar.gz", describe, ORIGINAL_100)
    train, test = (_original(path, "cifar-100-binary", (f"{part}.bin",), labels=2) for part in ("train", "test"))
    return Source(train, test, tuple(str(number) for number in range(100)))


def _original(path: Path, folder: str, batches: tuple[str, ...], labels: int = 1) -> Part:
    """Images and the last of their labels."""
    rows, size = [], labels + PIXELS
    try:
        with tarfile.open(path) as archive:
            for name in batches:
                stream = archive.extractfile(f"{folder}/{name}")
                content = stream.read() if stream else b""
                if not content or len(content) % size:
                    raise ValueError(
                        f"{folder}/{name} in {path} has {len(content)} bytes, not a multiple of {size}: fetch it again."
                    )
                rows.append(np.frombuffer(content, np.uint8).reshape(-1, size))
    except (tarfile.TarError, KeyError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is no complete archive of CIFAR ({error}): delete it and fetch it again.") from error
    both = torch.from_numpy(np.concatenate(rows))
    return both[:, labels:].reshape(-1, 3, 32, 32), both[:, labels - 1].long()


def cifar10_jpeg(request: Request) -> Source:
    """A part of CIFAR-10 as JPEG files of quality 75: more images than a reduced lossless copy has, but lossy ones.

    Their artefacts distinguish them from lossless images, so that images to compare with should be compressed in the
    same way; see :func:`as_jpeg`. The files are ``cifar10_jpeg/cifar10_jpeg_train.zip`` and ``cifar10_jpeg_test.zip``.
    """
    train, test = (
        read_jpegs(request.find(f"cifar10_jpeg/cifar10_jpeg_{part}.zip", JPEG_FORMAT)) for part in ("train", "test")
    )
    return Source(train, test, CLASSES)


def as_jpeg(images: Tensor, quality: int = JPEG_QUALITY) -> Tensor:
    """Compress images as JPEG files and decode them again.

    Args:
        images: uint8 (N, C, height, width), of one channel or three.
        quality: JPEG quality by the scale of Pillow, 1 to 95.

    Returns:
        Images of the same shape.
    """
    require_library("PIL", "JPEG images")
    from PIL import Image

    found = []
    for image in images:
        output = io.BytesIO()
        Image.fromarray(image.permute(1, 2, 0).squeeze(2).numpy()).save(output, "JPEG", quality=quality)
        found.append(_decoded(output.getvalue()))
    return torch.stack(found) if found else images


def read_jpegs(path: Path) -> Part:
    """Read JPEG files from a zip archive, in the order of their names: uint8 (N, C, height, width), and int64 (N,).

    Raises:
        ValueError: the archive or an image is damaged, or a name does not end in ``_<class>.jpg``.
    """
    require_library("PIL", "JPEG images")
    from PIL import UnidentifiedImageError

    images, labels = [], []
    try:
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                if (found := re.search(r"_(\d+)\.jpg$", name)) is None:
                    raise ValueError(f"the name {name!r} in {path} does not end in _<class>.jpg.")
                images.append(_decoded(archive.read(name)))
                labels.append(int(found[1]))
    except (zipfile.BadZipFile, UnidentifiedImageError, EOFError, zlib.error, OSError) as error:
        raise ValueError(f"{path} is no complete zip archive of JPEG images ({error}): fetch it again.") from error
    if not images:
        raise ValueError(f"{path} holds no image: fetch it again.")
    return torch.stack(images), torch.tensor(labels)


def _decoded(content: bytes) -> Tensor:
    """Channels first, also of a grey image."""
    from PIL import Image

    pixels = np.array(Image.open(io.BytesIO(content)))
    return torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1).contiguous()


def svhn(request: Request) -> Source:
    """SVHN, cropped digits: 73,257 training and 26,032 test images, from the original MATLAB files (Netzer 2011).

    In the files images are (32, 32, 3, N), and the label 10 is the digit 0.
    """
    from scipy.io import loadmat

    parts = []
    for part, original in SVHN_ORIGINALS.items():
        path = request.find(f"svhn/{part}_32x32.mat", "the original MATLAB file of SVHN, format 2", original)
        try:
            content = loadmat(path, variable_names=("X", "y"))
            x, y = content["X"], content["y"].reshape(-1)
        except (ValueError, KeyError, TypeError, EOFError, OSError, NotImplementedError) as error:
            raise ValueError(f"{path} is no complete file of SVHN ({error}): delete it and fetch it again.") from error
        images = torch.from_numpy(np.ascontiguousarray(x.transpose(3, 2, 0, 1)))
        parts.append((images, torch.from_numpy(y.astype(np.int64)) % 10))
    train, test = parts
    return Source(train, test, tuple("0123456789"))


@dataclass(frozen=True, eq=False)
class Faces:
    """Images of faces and their attributes.

    Args:
        images: Values in [0, 1].
        attributes: Table of 0 and 1, one row for each image.
        names: Names of the attributes.
    """

    images: Float[Tensor, "N 3 64 64"]
    attributes: Bool[Tensor, "N A"]
    names: tuple[str, ...]


def celeba(part: str, folder: str | Path | None = None) -> Faces:
    """The faces of one part.

    Args:
        part: "train" (4,000) or "test" (1,000).
        folder: The only folder to look into, or None for the usual places; nothing is downloaded.

    Raises:
        FileNotFoundError: the file is in none of the places.
    """
    with np.load(find(f"celeba64/celeba64_{part}.npz", folder, describe=CELEBA_FORMAT), allow_pickle=False) as file:
        images = torch.from_numpy(file["X"]).permute(0, 3, 1, 2)
        return Faces(as_inputs(images), torch.from_numpy(file["attr"]), tuple(str(name) for name in file["attr_names"]))
