"""Tables: CSV, TSV and Parquet files, and pandas tables in memory."""

import csv
import warnings
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch

from osculate.checks import require_library
from osculate.data.own.columns import texts
from osculate.data.own.content import Content, Wanted, listed
from osculate.memory import free, readable

#: Word for no target, where no column has this name.
NO_TARGET = "none"
#: Values that mean "missing", beside those of pandas (an empty cell, NA, NaN, null, None, …).
MISSING = ["?"]
#: Endings of tables that are text, and the entry of pandas' ``attrs`` with their words for missing values.
TEXT, WORDS = (".csv", ".tsv"), "osculate.missing"
#: Share of the free memory that the file of a table may have: in memory it takes several times as much.
SHARE = 0.1


def read_delimited(path: Path, missing: Sequence[str] | None = None) -> Any:
    """A CSV or TSV file as a pandas table; a semicolon is recognised as separator.

    Args:
        path: The file.
        missing: Words that count as missing beside empty cells; None for :data:`MISSING` and those of pandas.
    """
    require_library("pandas", "tables")
    import pandas as pd

    _require_room(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            separator = "\t" if path.suffix == ".tsv" else _separator(file.readline())
            file.seek(0)
            rows = csv.reader(file, delimiter=separator)
            header, first = next(rows, []), next(rows, [])
        _require_header(path, header, len(first))
        absent = MISSING if missing is None else ["", *missing]
        how: dict[str, Any] = {"sep": separator, "encoding": "utf-8-sig", "low_memory": False}
        frame = pd.read_csv(path, na_values=absent, keep_default_na=missing is None, **how)
        if lacking := [name for name in frame.columns if frame[name].isna().any()]:
            cells = pd.read_csv(path, usecols=lacking, dtype=str, keep_default_na=False, **how)
            found = {name: cells[name][frame[name].isna()].value_counts().to_dict() for name in lacking}
            frame.attrs[WORDS] = {name: {word: n for word, n in each.items() if word} for name, each in found.items()}
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not text in UTF-8 ({error.reason} at byte {error.start}): save it as CSV in UTF-8, or rename "
            "it if it is of another kind."
        ) from error
    except (pd.errors.ParserError, csv.Error) as error:
        reason = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        raise ValueError(
            f"{path} cannot be read as a table ({reason}): give each row the cells of the header, and put cells with a "
            "separator in quotes."
        ) from error
    return frame


def _separator(header: str) -> str:
    """The separator of a file from its first line."""
    counts = {each: header.count(each) for each in (",", ";", "\t")}
    return max(counts, key=lambda each: counts[each])


def _require_header(path: Path, header: list[str], cells: int) -> None:
    if not header:
        raise ValueError(f"{path} is empty: name another file.")
    twice = {name for name in header if header.count(name) > 1}
    numbers = [name for name in header if _is_number(name)]
    if len(numbers) == len(header):
        raise ValueError(
            f"the first line of {path} holds numbers only ({', '.join(header[:4])}): insert a line with the names of "
            "the columns."
        )
    if cells > len(header):
        raise ValueError(
            f"the rows of {path} have {cells} cells, more than its header has names, {len(header)}: give each column a "
            "name."
        )
    if twice:
        raise ValueError(f"{path} has several columns named {listed(sorted(twice))}: rename all but one.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_parquet(path: Path) -> Any:
    """A Parquet file as a pandas table."""
    require_library("pyarrow", "Parquet files")
    import pyarrow
    from pyarrow import parquet

    _require_room(path)
    require_library("pandas", "tables")
    try:
        return parquet.read_table(path).to_pandas()
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{path} cannot be read as a Parquet table ({reason}): write the file again.") from error


def _require_room(path: Path) -> None:
    size, available = path.stat().st_size, free(torch.device("cpu"))
    if size > SHARE * available:
        raise ValueError(
            f"{path} has {readable(size)}, and {readable(available)} of memory are free: pass numbers in Parquet or "
            "NumPy files to osc.data.stream, which reads one batch at a time."
        )


def table_content(frame: Any, name: str, wanted: Wanted) -> Content:
    """Inputs, targets, groups and parts of a table.

    Raises:
        ValueError: no target is named, a column that is named does not exist, or there are no rows or inputs.
    """
    frame = frame.rename(columns=str)
    if not frame.columns.is_unique:
        twice = sorted(set(frame.columns[frame.columns.duplicated()]))
        raise ValueError(f"{name} has several columns named {listed(twice)}: rename all but one.")
    if not len(frame):
        raise ValueError(f"{name} has no rows: name a table that holds data.")
    target = _targets(frame, name, wanted)
    for role, column in (("groups", wanted.groups), ("split_column", wanted.split_column)):
        if column is not None:
            _require_column(frame, name, role, column)
            _require_present(frame[column], name, role)
    others = [column for column in (*target, wanted.groups, wanted.split_column) if column in frame.columns]
    x = frame.drop(columns=others)
    if not len(x.columns):
        raise ValueError(f"{name} has no columns besides {listed(others)}: add the inputs to predict from.")
    columns = {column: frame[column] for column in others}
    groups, split = (
        None if column not in columns else texts(columns[column]).to_numpy(dtype=object)
        for column in (wanted.groups, wanted.split_column)
    )
    y = None
    if target and wanted.targets:
        y = _values(frame, target, name)
    return Content(name, x.reset_index(drop=True), y, target, groups, split)


def _targets(frame: Any, name: str, wanted: Wanted) -> tuple[str, ...]:
    known = list(frame.columns)
    if not wanted.targets:
        return tuple(column for column in wanted.target or () if column in known)
    if wanted.target is None:
        raise ValueError(
            f"name the column of {name} to predict with target= (--target): it has {listed(known)}; {NO_TARGET!r} is "
            "for autoencoders, which learn from the inputs alone."
        )
    if wanted.target == (NO_TARGET,) and NO_TARGET not in known:
        return ()
    if len(wanted.target) == 1 and wanted.target[0] not in known and "," in wanted.target[0]:
        parts = tuple(part.strip() for part in wanted.target[0].split(","))
        return _targets(frame, name, replace(wanted, target=parts))
    for column in wanted.target:
        _require_column(frame, name, "target", column)
    return tuple(wanted.target)


def _require_column(frame: Any, name: str, role: str, column: str) -> None:
    known = list(frame.columns)
    if column not in known:
        near = get_close_matches(column, known, n=1) or [each for each in known if each.lower() == column.lower()]
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"{name} has no column {column!r}{hint} for {role}: it has {listed(known)}.")


def _require_present(series: Any, name: str, role: str) -> None:
    missing = series.isna().to_numpy()
    if missing.any():
        raise ValueError(
            f"the column {series.name!r} of {name}, for {role}, is missing in {missing.sum()} of the {len(series)} "
            f"rows, first in row {int(missing.argmax()) + 1}: fill it in."
        )


def missing_words(frame: Any, column: str) -> str:
    """The words of a column that count as missing with their numbers of cells, for a message; "" without any."""
    words = frame.attrs.get(WORDS, {}).get(column, {})
    return ", ".join(f"{word!r} in {number} row{'s' if number > 1 else ''}" for word, number in words.items())


def _values(frame: Any, target: tuple[str, ...], name: str) -> np.ndarray:
    """The targets: numbers, or words of one column."""
    import pandas as pd

    for column in target:
        missing = frame[column].isna().to_numpy()
        if missing.any():
            also = missing_words(frame, column)
            way = f' ({also} counts as missing: missing=[] or --missing "" keeps it as a word)' if also else ""
            raise ValueError(
                f"the target {column!r} is missing in {missing.sum()} of the {len(frame)} rows of {name}, first in row "
                f"{int(missing.argmax()) + 1}{way}: remove them, and predict them with the trained network."
            )
    found = []
    for column in target:
        series = frame[column]
        real = pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series)
        if real and pd.api.types.is_complex_dtype(series):
            raise ValueError(f"the target {column!r} of {name} holds complex numbers: split it into two columns.")
        if real:
            whole = pd.api.types.is_integer_dtype(series)
            found.append(series.to_numpy(dtype=np.int64 if whole else np.float64))
        else:
            found.append(texts(series).to_numpy(dtype=object))  # words
    if len(found) == 1:
        return found[0]
    words = [column for column, values in zip(target, found, strict=True) if values.dtype == object]
    if words:
        raise ValueError(
            f"several targets must be numbers, and {words[0]!r} of {name} holds words such as "
            f"{str(found[target.index(words[0])][0])!r}: name one target."
        )
    return np.stack(found, 1).astype(np.float64)


def frame_of(thing: Any, name: str) -> Any:
    """A pandas table from a mapping of columns, or from a table of another library that has ``to_pandas``."""
    require_library("pandas", "tables")
    import pandas as pd

    if isinstance(thing, pd.DataFrame):
        return thing
    try:
        return pd.DataFrame(thing) if isinstance(thing, dict) else thing.to_pandas()
    except ValueError as error:
        raise ValueError(f"the columns of {name} are no table ({error}): give them one length.") from error


def with_targets(frame: Any, y: Any, name: str, wanted: Wanted) -> Content:
    """A table whose targets are passed beside it, as a pandas series or an array."""
    import pandas as pd

    values = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    if len(values) != len(frame):
        raise ValueError(f"{name} has {len(frame)} rows and {len(values)} targets: give each row one target.")
    if isinstance(y, pd.Series | pd.DataFrame) and not y.index.equals(frame.index):
        warnings.warn(
            "rows and targets have different indices in pandas: they are paired in their order.", stacklevel=4
        )
    if values.ndim > 1 and values.shape[1] > 1:
        names = tuple(map(str, getattr(y, "columns", [f"target {number}" for number in range(values.shape[1])])))
    else:
        names = ("target" if getattr(y, "name", None) is None else str(y.name),)
    frame, columns = frame.rename(columns=str), values.reshape(len(values), -1).T
    for column in names:
        if column in frame.columns:
            raise ValueError(f"the column {column!r} is among the inputs and the targets: drop it from the inputs.")
    with_y = frame.assign(**dict(zip(names, columns, strict=True)))
    return table_content(with_y, name, replace(wanted, target=names))
