"""Files of rows that do not fit into memory, as streams of batches: NumPy arrays and archives, and Parquet tables."""

import glob
import math
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from osculate.batches import BATCH_SIZE
from osculate.checks import require_library
from osculate.data.files import DAMAGED, declared, read_header, require_room
from osculate.streams import Pair, RowStream

#: One file, or the two of inputs and targets.
Files: TypeAlias = tuple[Path, ...]
#: Shapes and types of the arrays of inputs and of targets, by their names in messages.
Headers: TypeAlias = dict[str, tuple[tuple[int, ...], np.dtype]]
#: Words in the names of a file of inputs and of that of its targets.
INPUTS, TARGETS = "inputs", "targets"
#: Kinds of NumPy types that are real numbers.
REAL = "biuf"


def stream(
    paths: str | os.PathLike | Sequence[Any],
    target: str | None = None,
    batch_size: int = BATCH_SIZE,
    dtype: torch.dtype = torch.float32,
) -> RowStream:
    """Batches ``(x, y)`` from files that do not fit into memory, for ``osc.laplace``, ``osc.tune`` and ``osc.train``.

    A stream is read one batch at a time, in every pass anew, in the order of the rows in the files; files of a folder
    or pattern come in the order of their names. It has a length, ``num_rows``, and ``share(rank, size)`` for one of
    several processes. Shuffle the rows when they are written: a training takes them in their order.

    Args:
        paths: A file, a folder, a pattern such as ``"part-*.npz"``, or a list of these. An ``.npz`` archive holds X and
            y; for ``.npy`` files a pair of paths (inputs, targets), a list of such pairs, or names that differ by
            "inputs" and "targets"; the columns of a ``.parquet`` table are numbers (the extra ``tables``).
        target: Name of the targets: an array of each archive, "y" by default, or a column of each table.
        batch_size: Rows of a batch; some thousands are faster where the network is small.
        dtype: Floating type of inputs, whole numbers among them, and of targets that are real numbers.

    Returns:
        A stream with inputs (n, …), and targets as int64 of shape (n,) where they are whole numbers, otherwise as they
        are, (n, 1) for single real numbers. Nothing is scaled.

    Raises:
        FileNotFoundError: there is no file of this name, or none in the folder or of the pattern.
        ValueError: files differ in the shape or type of their rows, inputs and targets in their number; a file is cut
            off or damaged, has no such array or column, or holds anything but real numbers.
        ImportError: a Parquet file without pyarrow.

    Cost: reads the headers of all files. A pass holds one batch; of a Parquet table, one group of rows.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "inputs.npy", np.zeros((5, 2)))
    ...     np.save(Path(folder) / "targets.npy", np.arange(5))
    ...     [len(y) for _, y in stream(folder, batch_size=2)]
    [2, 2, 1]
    """
    shards = [shard for files in _grouped(_found(paths)) for shard in READERS[files[0].suffix](files, target)]
    first = shards[0]
    for shard in shards[1:]:
        if shard.rows != first.rows:
            raise ValueError(
                f"{shard.name} has {shard.rows}, and {first.name} has {first.rows}: give all files one shape and type."
            )
    result = RowStream(shards, batch_size, dtype)
    if not result.num_rows:
        raise ValueError(f"there are no rows in {first.name}, nor in any other of the files: pass some that hold data.")
    return result


def _found(paths: Any) -> list[Files]:
    """The files that are named, alone or in pairs."""
    if not isinstance(paths, str | os.PathLike):
        named = list(paths)
        if _is_pair(named):
            return [tuple(_file(path) for path in named)]
        if not named:
            raise FileNotFoundError("the list of paths is empty: name at least one file, folder or pattern.")
        return [files for each in named for files in _found(each)]
    path = Path(paths)
    if path.is_dir():
        found = sorted(each for each in path.iterdir() if each.suffix in READERS)
        known = f"in the folder {str(path)!r} with one of the endings {', '.join(READERS)}"
    elif glob.has_magic(str(path)) and not path.exists():
        found = sorted(map(Path, glob.glob(str(path), recursive=True)))
        known = f"with a name like {str(path)!r}"
    else:
        found, known = [_file(path)], ""
    if not found:
        raise FileNotFoundError(f"there is no file {known}: name another file, folder or pattern.")
    return [(file,) for file in found]


def _is_pair(named: list[Any]) -> bool:
    """True for two files of arrays, unless their names say that they are not inputs and targets in this order."""
    if len(named) != 2 or not all(
        isinstance(each, str | os.PathLike) and Path(each).suffix == ".npy" for each in named
    ):
        return False
    x, y = (Path(each).name for each in named)
    return not glob.has_magic(x + y) and INPUTS not in y and TARGETS not in x


def _file(path: str | os.PathLike) -> Path:
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file at {str(path)!r}: name a file, a folder or a pattern such as *.npz.")
    return Path(path)


def _grouped(found: list[Files]) -> Iterator[Files]:
    """The files of each shard, with single arrays paired by their names."""
    for files in found:
        path = files[0]
        if path.suffix not in READERS:
            raise ValueError(f"{path} has none of the endings {', '.join(READERS)}: leave it out, or convert it.")
        if len(files) == 2 or path.suffix != ".npy":
            yield files
        elif INPUTS in path.name:
            yield path, _file(path.with_name(path.name.replace(INPUTS, TARGETS)))
        elif TARGETS not in path.name or (path.with_name(path.name.replace(TARGETS, INPUTS)),) not in found:
            raise ValueError(
                f"it is not clear which inputs or targets belong to {path}: pass pairs (inputs.npy, targets.npy), or "
                "name the files so that they differ by 'inputs' and 'targets'."
            )


@dataclass(frozen=True, eq=False)
class FileShard:
    """The rows of a file, or of two.

    Attributes:
        name: The files, for messages.
        size: Number of rows.
        rows: Shape and type of a row in words, the same for all shards of a stream.
        pieces: Function that reads inputs and targets of slices of the rows.
    """

    name: str
    size: int
    rows: str
    pieces: Callable[[Iterable[slice]], Iterator[Pair]]

    @classmethod
    def of(cls, name: str, headers: Headers, pieces: Callable[[Iterable[slice]], Iterator[Pair]]) -> "FileShard":
        """A shard of two arrays.

        Raises:
            ValueError: they hold no real numbers, have no rows or differ in their number.
        """
        for what, (shape, dtype) in headers.items():
            if dtype.kind not in REAL:
                raise ValueError(f"{what} has the type {dtype}: write real numbers, such as float32.")
            if not shape:
                raise ValueError(f"{what} is a single number: write an array whose first axis are the rows.")
        (x, (x_shape, x_type)), (y, (y_shape, y_type)) = headers.items()
        if x_shape[0] != y_shape[0]:
            raise ValueError(f"{x} has {x_shape[0]:,} rows and {y} has {y_shape[0]:,}: give each input one target.")
        rows = f"rows of shape {x_shape[1:]} ({x_type}) with targets {y_shape[1:]} ({y_type})"
        return cls(name, x_shape[0], rows, pieces)

    def read(self, parts: Iterable[slice]) -> Iterator[Pair]:
        """Yield inputs and targets of these rows, part by part; single real numbers as a column."""
        with _readable(self.name):
            for x, y in self.pieces(parts):
                yield x, y[:, None] if y.ndim == 1 and y.dtype.kind == "f" else y


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Say of a file that is damaged what it is."""
    try:
        yield
    except DAMAGED as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise ValueError(f"{name} cannot be read ({reason}): write the file again, with plain numbers.") from error


def _of_arrays(files: Files, target: str | None) -> list[FileShard]:
    """Two memory-mapped arrays."""
    mapped = [_mapped(path) for path in files]
    headers = {str(path): (array.shape, array.dtype) for path, array in zip(files, mapped, strict=True)}
    if target is not None:
        raise ValueError(f"target={target!r} names an array of an .npz archive or a column; {files[1]} holds only one.")
    return [FileShard.of(" with ".join(map(str, files)), headers, partial(_pieces_of_arrays, files, headers))]


def _pieces_of_arrays(files: Files, headers: Headers, parts: Iterable[slice]) -> Iterator[Pair]:
    x, y = (_mapped(path) for path in files)
    if headers != {str(path): (array.shape, array.dtype) for path, array in zip(files, (x, y), strict=True)}:
        raise ValueError("the files have changed since they were opened.")
    return ((x[part], y[part]) for part in parts)


def _mapped(path: Path) -> np.ndarray:
    """The array of a file, memory-mapped."""
    with _readable(str(path)), path.open("rb") as file:
        shape, fortran, dtype = read_header(file)
        if dtype.hasobject:
            raise ValueError("it holds Python objects.")
        size = file.tell() + math.prod(shape) * dtype.itemsize
        if size != (found := path.stat().st_size):
            raise ValueError(f"it declares {size:,} bytes and has {found:,}.")
        if not math.prod(shape):  # nothing can be mapped
            return np.empty(shape, dtype)
        return np.memmap(path, dtype, "r", file.tell(), shape, "F" if fortran else "C")


def _of_archive(files: Files, target: str | None) -> list[FileShard]:
    """The arrays of an archive, which are inflated as they are read."""
    path, y = files[0], target or "y"
    with _readable(str(path)):
        arrays = declared(path)
    others = sorted(arrays.keys() - {y})
    x = "X" if "X" in others else others[0] if len(others) == 1 else None
    if y not in arrays or x is None:
        known = ", ".join(map(repr, arrays)) or "nothing"
        raise ValueError(
            f"{path} holds {known}, and not inputs 'X' with targets {y!r}: write X and y with numpy.savez, or name the "
            "targets with target=."
        )
    headers = {f"{name!r} in {path}": arrays[name] for name in (x, y)}
    own = {name: arrays[name] for name in (x, y)}
    return [FileShard.of(str(path), headers, partial(_pieces_of_archive, path, own))]


def _pieces_of_archive(path: Path, arrays: Headers, parts: Iterable[slice]) -> Iterator[Pair]:
    x, y = arrays
    with zipfile.ZipFile(path) as archive, archive.open(f"{x}.npy") as inputs, archive.open(f"{y}.npy") as targets:
        rows = [_rows(path, file, arrays[name]) for file, name in ((inputs, x), (targets, y))]
        for part in parts:
            yield rows[0](part), rows[1](part)


def _rows(path: Path, file: Any, expected: tuple[tuple[int, ...], np.dtype]) -> Callable[[slice], np.ndarray]:
    """Function that reads rows of an array in an archive, forwards; all are held in Fortran order."""
    shape, fortran, dtype = read_header(file)
    if (shape, dtype) != expected:
        raise ValueError("the file has changed since it was opened.")
    if fortran:
        require_room(path)
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False).__getitem__
    begin, each = file.tell(), math.prod(shape[1:]) * dtype.itemsize

    def read(part: slice) -> np.ndarray:
        file.seek(begin + part.start * each)
        content = file.read((part.stop - part.start) * each)
        return np.frombuffer(content, dtype).reshape(part.stop - part.start, *shape[1:])

    return read


def _of_table(files: Files, target: str | None) -> list[FileShard]:
    """The groups of rows of a Parquet table."""
    require_library("pyarrow", "Parquet files")
    from pyarrow import parquet

    path = files[0]
    with _readable(str(path)), parquet.ParquetFile(path) as table:
        columns = {field.name: field.type for field in table.schema_arrow}
        sizes = [table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)]
    if target is None or target not in columns or len(columns) < 2:
        known = ", ".join(map(repr, columns))
        raise ValueError(f"target={target!r} is none of the columns of {path}: {known}. Name the one with the targets.")
    types = {}
    for name, kind in columns.items():
        try:
            types[name] = np.dtype(kind.to_pandas_dtype())
        except NotImplementedError:
            types[name] = np.dtype(object)
        if types[name].kind not in REAL:
            raise ValueError(f"column {name!r} of {path} has the type {kind}: convert it to numbers, or leave it out.")
    inputs = [name for name in columns if name != target]
    together = np.result_type(*(types[name] for name in inputs))
    rows = "columns " + ", ".join(f"{name} {kind}" for name, kind in columns.items())
    groups = [partial(_pieces_of_table, path, group, inputs, target, together) for group in range(max(1, len(sizes)))]
    return [FileShard(str(path), size, rows, group) for size, group in zip(sizes or [0], groups, strict=True)]


def _pieces_of_table(
    path: Path, group: int, inputs: list[str], target: str, dtype: np.dtype, parts: Iterable[slice]
) -> Iterator[Pair]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as table:
        found = table.read_row_group(group, columns=[*inputs, target])
    for name in found.column_names:
        if found[name].null_count:
            raise ValueError(f"column {name!r} has {found[name].null_count} empty entries.")
    x = np.empty((len(found), len(inputs)), dtype)
    for number, name in enumerate(inputs):
        x[:, number] = found[name].to_numpy()
    y = found[target].to_numpy()
    del found
    yield from ((x[part], y[part]) for part in parts)


#: What opens files, by their ending.
READERS: dict[str, Callable[[Files, str | None], list[FileShard]]] = {
    ".npy": _of_arrays,
    ".npz": _of_archive,
    ".parquet": _of_table,
}
