"""Look-up of data files, and readers of the two file formats."""

import gzip
import math
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import numpy as np
import torch
from torch import Tensor

from osculate.checks import require_library
from osculate.memory import free, readable

#: Environment variable with the folder of the data sets.
VARIABLE = "OSCULATE_DATA"

#: Share of the free memory that the arrays of an archive may take.
SHARE = 0.5
#: Errors of damaged archives.
ZIP = (zipfile.BadZipFile, zlib.error)
#: Errors of damaged files of arrays.
DAMAGED = (OSError, EOFError, ValueError, AttributeError, TypeError, RuntimeError, KeyError, *ZIP)
#: idx magic numbers: unsigned bytes, with the number of axes in the last byte.
IDX_UBYTE = 0x0800


@dataclass(frozen=True)
class Download:
    """A public file and its checksum.

    Args:
        url: Address of the original, by https.
        md5: Published MD5 sum of the file.

    Raises:
        ValueError: another protocol, whose content could be changed on its way.

    >>> Download("http://example.org/a.npz", "0" * 32)
    Traceback (most recent call last):
    ...
    ValueError: 'http://example.org/a.npz' is not https: name an address that begins with https://.
    """

    url: str
    md5: str

    def __post_init__(self) -> None:
        require_https(self.url)


def require_https(url: str) -> None:
    """Raise ValueError for an address of another protocol than https."""
    if not url.startswith("https://"):
        raise ValueError(f"{url!r} is not https: name an address that begins with https://.")


def user_cache() -> Path:
    """The folder that downloads are kept in."""
    require_library("pooch", "files of data sets")
    import pooch

    return Path(pooch.os_cache("osculate"))


def find(relative: str, folder: str | Path | None = None, download: Download | None = None, describe: str = "") -> Path:
    """Find the file of a data set.

    Only ``folder`` is searched if it is given. Otherwise: the folder named by ``OSCULATE_DATA``, the user's cache, and
    last a download of the original into that cache, with its checksum verified.

    Args:
        relative: Path inside the data folder, for example ``"mnist/t10k-labels-idx1-ubyte.gz"``.
        folder: The only folder to search; it may also be the folder of the set itself.
        download: The public original, if its checksum is known.
        describe: Expected contents, for the error message.

    Raises:
        FileNotFoundError: it is in none of these places; the message lists them and says what to set.
    """
    candidates = places(relative, folder)
    for path in candidates:
        if path.is_file():
            return path
    problem = ""
    if folder is None and download is not None:
        try:
            return _fetch(relative, download)
        except (OSError, ValueError) as error:  # no network, no such file, another checksum
            problem = f" Downloading {download.url} failed: {error}."
    looked = ", ".join(str(path) for path in candidates)
    raise FileNotFoundError(
        f"{relative} was not found; looked for {looked}.{problem} Put the file there"
        f"{f' ({describe})' if describe else ''}, or set {VARIABLE} to the folder that holds it."
    )


def places(relative: str, folder: str | Path | None = None) -> list[Path]:
    """The paths at which :func:`find` looks for a file, in order."""
    if folder is None:
        named = os.environ.get(VARIABLE)
        return [*([Path(named) / relative] if named else []), user_cache() / relative]
    candidates = [Path(folder) / relative]
    # the folder of the set itself is accepted, but not that of another: MNIST and Fashion-MNIST share file names
    if Path(folder).name == Path(relative).parent.name:
        candidates.append(Path(folder) / Path(relative).name)
    return candidates


def _require_secure(response: Any, *_: Any, **__: Any) -> None:
    """Raise ValueError for a redirection to another protocol than https."""
    if response.is_redirect:
        require_https(urljoin(response.url, response.headers["location"]))


def _fetch(relative: str, download: Download) -> Path:
    """Download into the cache; pooch checks the sum, writes to a temporary file and renames."""
    require_library("pooch", "files of data sets")
    import pooch

    target = user_cache() / relative
    fetched = pooch.retrieve(
        url=download.url,
        known_hash=f"md5:{download.md5}",
        fname=target.name,
        path=target.parent,
        downloader=pooch.HTTPDownloader(timeout=30, hooks={"response": _require_secure}),
    )
    return Path(fetched)


def read_idx(path: str | Path, axes: int) -> Tensor:
    """Read a gzip-compressed idx file of unsigned bytes, the format of MNIST.

    A big-endian 32-bit magic number (2049 for one axis, 2051 for three), one big-endian 32-bit length for
    each axis, then the bytes in C order.

    Args:
        path: The ``.gz`` file.
        axes: Number of axes that it must have: 1 for labels, 3 for images.

    Returns:
        A uint8 tensor with that many axes.

    Raises:
        ValueError: the file is not gzip, is cut off, has another magic number or another length than it says.
    """
    try:
        with gzip.open(path) as file:
            shape = _idx_shape(path, file.read(4 * (axes + 1)), axes)
            raw = bytearray(file.read(math.prod(shape) + 1))  # no more is inflated than the header declares
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is no complete gzip file ({error}): delete it and fetch it again.") from error
    if len(raw) != math.prod(shape):
        than = "more" if len(raw) > math.prod(shape) else f"{len(raw):,}"
        raise ValueError(f"{path} declares the shape {shape}, but holds {than} bytes: fetch it again.")
    return torch.from_numpy(np.frombuffer(raw, dtype=np.uint8).reshape(shape))


def _idx_shape(path: str | Path, header: bytes, axes: int) -> tuple[int, ...]:
    """The shape that the header of an idx file declares."""
    if len(header) < 4 * (axes + 1):
        raise ValueError(
            f"{path} has {len(header)} bytes, fewer than the {4 * (axes + 1)} of an idx header: fetch it again."
        )
    magic, *shape = np.frombuffer(header, dtype=">u4").tolist()
    if magic != IDX_UBYTE + axes:
        raise ValueError(f"{path} has the magic number {magic}, but {IDX_UBYTE + axes} marks idx files of {axes} axes.")
    size, available = math.prod(shape), free(torch.device("cpu"))
    if size > SHARE * available:
        raise ValueError(
            f"{path} declares the shape {tuple(shape)}, {readable(size)}, and {readable(available)} of memory are free."
        )
    return tuple(shape)


def read_npz(path: str | Path, *keys: str) -> list[np.ndarray]:
    """Read arrays from a NumPy archive that holds no pickled objects.

    Args:
        path: The ``.npz`` file.
        *keys: The arrays to return, in this order.

    Raises:
        ValueError: the file is not such an archive, an array is missing, or one holds Python objects.
    """
    arrays = read_all_npz(path)
    for key in keys:
        if key not in arrays:
            known = ", ".join(map(repr, arrays)) or "nothing"
            raise ValueError(f"{path} has no array {key!r}: it holds {known}.")
    return [arrays[key] for key in keys]


def declared(path: str | Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shapes and types of the arrays of a NumPy archive, from their headers: nothing is inflated.

    Raises:
        ValueError: an array declares another size than the archive has for it, or holds Python objects.
        zipfile.BadZipFile: the file is no archive.
    """
    found = {}
    with zipfile.ZipFile(path) as archive:
        for each in archive.infolist():
            with archive.open(each) as file:
                shape, _, dtype = read_header(file)
                size = file.tell() + math.prod(shape) * dtype.itemsize
            if dtype.hasobject:
                raise ValueError(f"{each.filename} holds Python objects.")
            if size != each.file_size:
                raise ValueError(f"{each.filename} declares {size:,} bytes and has {each.file_size:,}.")
            found[each.filename.removesuffix(".npy")] = (shape, dtype)
    return found


def read_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, Fortran order and type of an array in NumPy's format; the file is left where its numbers begin."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)


def require_room(path: str | Path) -> None:
    """Raise ValueError if the arrays of an archive would take more than half of the free memory once inflated.

    Raises:
        ValueError: the message gives both sizes.
    """
    sizes = {name: math.prod(shape) * dtype.itemsize for name, (shape, dtype) in declared(path).items()}
    available = free(torch.device("cpu"))
    if sum(sizes.values()) > SHARE * available:
        largest = max(sizes, key=sizes.__getitem__)
        raise ValueError(
            f"its arrays take {readable(sum(sizes.values()))}, {largest!r} alone {readable(sizes[largest])}, and "
            f"{readable(available)} of memory are free."
        )


def read_all_npz(path: str | Path) -> dict[str, np.ndarray]:
    """Read all arrays of a NumPy archive; see :func:`read_npz`."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file at {str(path)!r}.")
    try:
        if zipfile.is_zipfile(path):
            require_room(path)
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except DAMAGED as error:
        raise ValueError(
            f"{path} cannot be read as an .npz archive of plain arrays ({str(error).rstrip('.')}): write it with "
            "numpy.savez."
        ) from error
