"""Print what a file is, and whether it is whole.

It may be a posterior, a network, a checkpoint, arrays, options, or a table or folder of images, whose schema is shown.
Nothing of it is executed, and no network is built. The exit status is 2 for a file that is damaged or unknown.
"""

import json
import math
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch import Tensor

from osculate import serialization
from osculate.cli import checkpoint, reconstruct
from osculate.cli.folder import read_config
from osculate.data import read
from osculate.data.files import ZIP, declared
from osculate.data.own.pictures import is_pictures
from osculate.memory import readable
from osculate.posteriors import resumable
from osculate.tensorfiles import CHECKSUM, digest, header_of, read_tensors
from osculate.training import full_batch

#: Endings of tables.
TABLES = (".csv", ".tsv", ".parquet")
#: Kinds of tensor files by the key of their header.
KINDS = {
    serialization.HEADER: "posterior",
    checkpoint.HEADER: "network with its card",
    full_batch.HEADER: "checkpoint of a training by full-batch steps",
    resumable.HEADER: "sums of an interrupted fit",
    reconstruct.HEADER: "network of a reconstruction",
}
#: Entries of headers that are shown as they are.
SHOWN = (
    "format",
    "posterior",
    "num_data",
    "temperature",
    "kind",
    "model",
    "input_shape",
    "outputs",
    "noise",
    "position",
)


@dataclass(frozen=True)
class InspectOptions:
    """The file.

    Args:
        file: A file, a folder of images, or a folder of a run, all of whose files are shown.
    """

    file: Path


PARTS = (InspectOptions,)
SUBJECT = "file"


def run(options: InspectOptions) -> dict[str, Any]:
    """Print a description of each file, and return them by path; damaged ones are named at the end.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a file is damaged, or of no kind that osculate reads.
    """
    path = options.file
    if not path.is_dir() and not path.is_file():
        raise FileNotFoundError(f"there is no file at {str(path)!r}: name a run folder, or a file that osculate reads.")
    files = sorted(one for one in path.rglob("*") if one.is_file())
    if path.suffix.lower() in TABLES or (is_pictures(path) and not any(map(kind_of, files))):
        return {str(path): _show(path, _data(path))}
    if not path.is_dir():
        return {str(path): _show(path, described(path))}
    damaged, shown = [], {}
    for each in files:
        try:
            known = kind_of(each) is not None
            facts = described(each) if known else [("size", readable(each.stat().st_size))]
            shown[str(each)] = _show(each, facts)
        except (ValueError, OSError) as error:
            print(f"  {error}")
            damaged.append(each)
    if damaged:
        listed = ", ".join(repr(str(each)) for each in damaged)
        raise ValueError(f"{listed} cannot be read: use a copy, or make it again.")
    return shown


def _show(path: Path, facts: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    print(path)
    shown = {}
    for name, value in facts:
        print(f"  {name:<14} {value}")
        shown[name] = value
    return shown


def _data(path: Path) -> Iterator[tuple[str, Any]]:
    """Facts of what training would read: the columns of a table, or the classes and shape of images."""
    data = read(path, target=None if path.is_dir() else "none")
    yield "what", "folder of images" if path.is_dir() else "table"
    yield "rows", sum(len(part[0]) for part in (data.train, data.validation, data.test))
    yield "schema", f"\n{data.schema}"


def kind_of(path: Path) -> str | None:
    """The ending that a file's content calls for; that of its name where the content does not say.

    Returns:
        A key of :data:`READERS`, or None for what osculate does not read.
    """
    with path.open("rb") as file:
        head = file.read(9)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 2**40:
        return ".safetensors"
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return ".ckpt" if any(name.endswith("data.pkl") for name in archive.namelist()) else ".npz"
    return path.suffix if path.suffix in READERS else None


def described(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield names and facts of a file.

    Raises:
        ValueError: it is damaged, or of no kind that osculate reads.
    """
    kind = kind_of(path)
    if kind is None:
        raise ValueError(f"{str(path)!r} is of no kind that osculate reads: {', '.join((*READERS, *TABLES))}.")
    yield "size", readable(path.stat().st_size)
    yield from READERS[kind](path)


def _tensors(path: Path) -> Iterator[tuple[str, Any]]:
    metadata, tensors = read_tensors(path)
    key = next((name for name in metadata if name in KINDS), None)
    yield "what", "tensors, not written by osculate" if key is None else KINDS[key]
    if key is not None:
        header = header_of(path, metadata, key)
        yield from ((name, header[name]) for name in SHOWN if header.get(name) is not None)
        for name in ("structure", "likelihood"):
            if isinstance(header.get(name), dict) and "name" in header[name]:
                yield name, header[name]["name"]
        if "architecture" in header:
            yield "architecture", _short(header["architecture"].encode())
        yield "checksum", "right" if _has_checksum(path) else "none (version 0.1)"
    prefix = "network." if any(name.startswith("network.") for name in tensors) else ""
    weights = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    yield "weights", digest({}, weights)[:16]  # the same for a posterior and the network that it is around
    yield "tensors", f"{len(tensors)}, {_floats(tensors):,} numbers"


def _has_checksum(path: Path) -> bool:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return CHECKSUM in json.loads(file.read(size)).get("__metadata__", {})


def _checkpoint(path: Path) -> Iterator[tuple[str, Any]]:
    from osculate.training.checkpoints import Checkpoints, checksum_of

    try:
        found = Checkpoints().load_checkpoint(path)
    except Exception as error:
        raise ValueError(f"{str(path)!r} is damaged, or no checkpoint of a training ({error}).") from error
    saved = found.get("osculate", {})
    yield "what", "checkpoint of a training" if saved else "checkpoint of Lightning, not of osculate"
    yield "epochs", len(saved.get("history", ())) or found.get("epoch", 0)
    yield from ((name, saved[name]) for name in ("num_data",) if name in saved)
    yield from ((name, value) for name, value in saved.get("data", {}).items())
    yield "checksum", "right" if checksum_of(path).is_file() else "none (version 0.1)"


def _arrays(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        arrays = declared(path)
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except (OSError, ValueError, EOFError, RuntimeError, NotImplementedError, *ZIP) as error:
        raise ValueError(f"{str(path)!r} is damaged, or no archive of arrays ({error}).") from error
    if broken is not None:
        raise ValueError(
            f"{str(path)!r} is damaged: {broken} is not that of its checksum. Use a copy, or make it again."
        )
    yield "what", "archive of arrays"
    for name, (shape, dtype) in arrays.items():
        yield name, f"{dtype} {shape}, {readable(math.prod(shape) * dtype.itemsize)}"
    yield "checksum", "right"


def _options(path: Path) -> Iterator[tuple[str, Any]]:
    yield from read_config(path).items()


def _record(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is damaged, or not JSON ({error}).") from error
    yield "what", f"JSON with {', '.join(content) if isinstance(content, dict) else f'{len(content)} entries'}"


def _short(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]


def _floats(tensors: dict[str, Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors.values())


#: Readers by the end of a file's name.
READERS = {
    ".safetensors": _tensors,
    ".ckpt": _checkpoint,
    ".npz": _arrays,
    ".yaml": _options,
    ".json": _record,
}
