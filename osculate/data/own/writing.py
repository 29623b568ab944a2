"""Tables of predictions, in the formats that are read."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from osculate.checks import require_library
from osculate.files import write_text, written_aside

#: First characters of a cell that a spreadsheet takes for a formula, which may run programs or send data.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_predictions(path: Path, columns: Mapping[str, np.ndarray], classes: Sequence[str] | None = None) -> None:
    """Write arrays with one row for each input, as a whole file or not at all.

    In tables the columns of a matrix are named by the classes, ``probabilities[yes]``, and words that a spreadsheet
    would execute begin with an apostrophe. An ``.npz`` archive holds the arrays as they are.

    Args:
        path: The file; its ending is one of :data:`WRITERS`.
        columns: Arrays of numbers or words, (N,) or (N, C), by name.
        classes: Names of the C classes.
    """
    WRITERS[path.suffix](path, columns, classes or ())


def safe(cell: str) -> str:
    """A word that a spreadsheet does not execute; numbers are left as they are.

    >>> safe("=1+1"), safe("-1.5"), safe("yes")
    ("'=1+1", '-1.5', 'yes')
    """
    if not cell.startswith(FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def _flat(columns: Mapping[str, np.ndarray], classes: Sequence[str]) -> dict[str, np.ndarray]:
    """One column each, with the names of classes in brackets."""
    found = {}
    for name, values in columns.items():
        matrix = values.reshape(len(values), -1)
        number = matrix.shape[1]
        for index in range(number):
            inside = classes[index] if len(classes) == number else index
            found[name if number == 1 else f"{name}[{inside}]"] = matrix[:, index]
    return found


def _delimited(separator: str) -> Callable[[Path, Mapping[str, np.ndarray], Sequence[str]], None]:
    def write(path: Path, columns: Mapping[str, np.ndarray], classes: Sequence[str]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, delimiter=separator, lineterminator="\n")
        flat = _flat(columns, classes)
        writer.writerow(map(safe, flat))
        for row in zip(*flat.values(), strict=True):
            writer.writerow(map(_cell, row))
        write_text(path, text.getvalue())

    return write


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.7g}"
    return safe(str(value))


def _parquet(path: Path, columns: Mapping[str, np.ndarray], classes: Sequence[str]) -> None:
    require_library("pyarrow", "Parquet files")
    import pyarrow as pa
    from pyarrow import parquet

    flat = {name: values.tolist() for name, values in _flat(columns, classes).items()}
    with written_aside(path) as aside:
        parquet.write_table(pa.table(flat), aside)


def _npz(path: Path, columns: Mapping[str, np.ndarray], classes: Sequence[str]) -> None:
    words = {name: values.astype(str) if values.dtype == object else values for name, values in columns.items()}
    with written_aside(path) as aside, aside.open("wb") as file:
        np.savez(file, **words)  # type: ignore[arg-type]


#: What writes a file, by its ending.
WRITERS: Mapping[str, Callable[[Path, Mapping[str, np.ndarray], Sequence[str]], None]] = {
    ".npz": _npz,
    ".csv": _delimited(","),
    ".tsv": _delimited("\t"),
    ".parquet": _parquet,
}
