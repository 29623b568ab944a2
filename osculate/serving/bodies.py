"""JSON and CSV as numbers, strictly: what is not a finite number of the right shape is refused."""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NoReturn

import numpy as np

from osculate.serving.refusals import Refused

#: The keys of inputs and of rows of a table in JSON.
INPUTS, ROWS = "inputs", "rows"
#: The largest number in single precision.
LARGEST = float(np.finfo(np.float32).max)
#: Kinds of bodies.
JSON, CSV = "application/json", "text/csv"


def read_table(kind: str, body: bytes, columns: Mapping[str, bool], most: int) -> dict[str, list[Any]]:
    r"""The columns of a request: of a list of objects in JSON, or of CSV with a header.

    Args:
        kind: The header Content-Type.
        body: The content.
        columns: Names of the columns, with True for those of numbers.
        most: Rows at most.

    Raises:
        Refused: 415 for another kind, 422 for what is malformed or not finite, 413 for too many rows.

    >>> read_table("text/csv", b"size,colour\n1.5,red\n", {"size": True, "colour": False}, 10)
    {'size': [1.5], 'colour': ['red']}
    """
    name, text = _text(kind, body)
    rows = _listed(text, ROWS) if name == JSON else _lines(text, columns, most)
    _require_number_of_rows(len(rows), most)
    for row in rows:
        if type(row) is not dict or set(row) != set(columns):
            raise Refused(422, f"each row must have the columns {', '.join(columns)}, and no others.")
        for column, numeric in columns.items():
            value = row[column]
            right = type(value) in (int, float) if numeric else type(value) in (str, int, float, bool)
            if not (right or value is None) or (isinstance(value, int | float) and not _is_finite(value)):
                kinds = "numbers" if numeric else "words or numbers"
                raise Refused(
                    422,
                    f"the column {column!r} must hold {kinds}, finite in single precision, or null for missing ones.",
                )
    return {column: [row[column] for row in rows] for column in columns}


def read_body(kind: str, body: bytes, shape: tuple[int, ...], most: int) -> np.ndarray:
    """The inputs of a request as float64 (N, …).

    Args:
        kind: The header Content-Type.
        body: The content.
        shape: Shape of one input.
        most: Rows at most.

    Raises:
        Refused: 415 for another kind, 422 for what is malformed or not finite, 413 for too many rows.

    >>> read_body("application/json", b'{"inputs": [[1, 2]]}', (2,), 10)
    array([[1., 2.]])
    """
    name, text = _text(kind, body)
    rows = _listed(text, INPUTS) if name == JSON else _rows_of_csv(text, shape, most)
    _require_number_of_rows(len(rows), most)
    return _numbers(rows, shape)


def _text(kind: str, body: bytes) -> tuple[str, str]:
    """The kind of a body, and its text."""
    name = kind.partition(";")[0].strip().lower()
    if name not in (JSON, CSV):
        raise Refused(415, f"the body must be {JSON} or {CSV}: set the header Content-Type.")
    try:
        return name, body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused(422, "the body is not UTF-8 text: encode it as UTF-8.") from None


def _require_number_of_rows(count: int, most: int) -> None:
    if not count:
        raise Refused(422, "there are no inputs: send at least one row.")
    if count > most:
        raise Refused(413, f"there are {count:,} rows, and a request takes {most:,}: send several.")


def _lines(text: str, columns: Mapping[str, bool], most: int) -> list[Any]:
    """Rows of CSV by the names in its header; empty cells are missing."""
    rows: list[Any] = []
    try:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        head = next(reader, [])
        for line, cells in enumerate(reader, 2):
            if not cells:
                continue
            if len(cells) != len(head):
                raise Refused(422, f"line {line} of the CSV has {len(cells)} cells, and its header {len(head)}.")
            if len(rows) == most:
                raise Refused(413, f"there are more than {most:,} rows, which a request takes at most: send several.")
            row = {
                name: (_number(cell, line, "leave missing ones empty") if columns.get(name) else cell) if cell else None
                for name, cell in zip(head, cells, strict=True)
            }
            rows.append(row if len(row) == len(head) else None)
    except csv.Error:
        raise Refused(422, "the body is not CSV: check its quotes.") from None
    return rows


def content_of_json(text: str | bytes) -> dict[str, Any]:
    """An object in strict JSON.

    Raises:
        Refused: 422 for anything else, also for NaN, Infinity and a key that is there twice.
    """

    def unknown(word: str) -> NoReturn:
        raise Refused(422, f"{word} is not JSON, and predictions need finite numbers: leave such rows out.")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise Refused(422, "a key is there twice in an object of the JSON: leave one out.")
        return dict(pairs)

    try:
        content = json.loads(text, parse_constant=unknown, object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise Refused(422, "the body is not JSON, or too deep: check brackets, commas and quotes.") from None
    if not isinstance(content, dict):
        raise Refused(422, 'the JSON must be an object, such as {"' + INPUTS + '": [[0.1, 0.2]]}.')
    return content


def _listed(text: str, key: str) -> list[Any]:
    content = content_of_json(text)
    if set(content) != {key} or type(content[key]) is not list:
        raise Refused(422, f'the JSON must have the key "{key}" with a list, and no other key.')
    return content[key]


def _rows_of_csv(text: str, shape: tuple[int, ...], most: int) -> list[Any]:
    """Rows of as many numbers as an input has, in the order of its axes."""
    size = math.prod(shape)
    rows: list[Any] = []
    try:
        for line, cells in enumerate(csv.reader(io.StringIO(text, newline=""), strict=True), 1):
            if not cells:
                continue
            if len(cells) != size:
                raise Refused(422, f"line {line} of the CSV has {len(cells)} cells, and an input has {size} numbers.")
            if len(rows) == most:
                raise Refused(413, f"there are more than {most:,} rows, which a request takes at most: send several.")
            row = [_number(cell, line, "send numbers without a header") for cell in cells]
            rows.append(np.array(row).reshape(shape).tolist())
    except csv.Error:
        raise Refused(422, "the body is not CSV: check its quotes.") from None
    return rows


def _number(cell: str, line: int, way_out: str) -> float:
    try:
        if cell.isascii() and "_" not in cell:
            return float(cell)
    except ValueError:
        pass
    raise Refused(422, f"line {line} of the CSV has a cell that is not a number: {way_out}.")


def _is_finite(value: float | int) -> bool:
    """True for a number that is finite in single precision."""
    try:
        return abs(float(value)) <= LARGEST
    except OverflowError:
        return False


def _numbers(rows: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Nested lists as an array, axis by axis."""
    level: Iterable[Any] = rows
    for axis, size in enumerate(shape):
        parts = list(level)
        if not all(type(part) is list and len(part) == size for part in parts):
            raise Refused(
                422,
                f"each input must be a list of the shape {list(shape)}, and one is not at axis {axis}: reshape it.",
            )
        level = chain.from_iterable(parts)
    flat = list(level)
    if not all(type(value) in (int, float) for value in flat):
        raise Refused(
            422, f"each input must hold numbers in the shape {list(shape)}: convert texts, null and booleans."
        )
    if not all(map(_is_finite, flat)):
        raise Refused(422, "a number is not finite in single precision: leave such rows out, or fill in the value.")
    return np.array(flat, dtype=np.float64).reshape(len(rows), *shape)
