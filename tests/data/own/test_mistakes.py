"""Likely mistakes with files, types and options: each is answered in one sentence or two with the way out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from osculate.data import read
from tests.errors import says

HEADER = "size,colour,bought\n"
ROWS = "".join(f"{n}.5,{'red' if n % 2 else 'blue'},{'yes' if n % 3 else 'no'}\n" for n in range(40))


def text(content: str, name: str = "mine.csv", **options: Any) -> Callable[[Path], Any]:
    """A mistake in a file of text."""

    def made(folder: Path) -> Any:
        (folder / name).write_text(content)
        return read(folder / name, **{"target": "bought", **options})

    return made


def data(content: bytes, name: str, **options: Any) -> Callable[[Path], Any]:
    """A mistake in a file of bytes."""

    def made(folder: Path) -> Any:
        (folder / name).write_bytes(content)
        return read(folder / name, **{"target": "bought", **options})

    return made


def thing(given: Any, **options: Any) -> Callable[[Path], Any]:
    """A mistake with an object in memory."""
    return lambda folder: read(given, **options)


FRAME = pd.DataFrame({"x": np.arange(30) * 0.5, "y": np.arange(30) % 2, "g": ["a"] * 30})


def again(**options: Any) -> Callable[[Path], Any]:
    """A mistake with data that are read by the schema of others."""
    return lambda folder: read(FRAME, schema=read(FRAME, target="y").schema, **options)


#: What is done, and what the error says.
MISTAKES: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "no such file": (lambda folder: read(folder / "none.csv"), ["no file", "none.csv", "accepted are"]),
    "an address": (thing("https://example.org/table.csv"), ["address", "download it first"]),
    "a spreadsheet": (data(b"PK", "mine.xlsx"), ["'.xlsx'", "save the sheet as CSV", "Accepted are tables"]),
    "a spreadsheet named csv": (
        data(b"PK\x03\xff\xfe", "mine.csv"),
        ["not text in UTF-8", "save it as CSV"],
    ),
    "an archive": (data(b"PK", "mine.zip"), ["'.zip'", "unpack it first"]),
    "a pickle": (data(b"\x80", "mine.pkl"), ["'.pkl'", "execute code", "numpy.savez"]),
    "weights": (data(b"{}", "model.safetensors"), ["weights of a network", "Accepted are"]),
    "one image": (data(b"\xff\xd8", "cat.jpg"), ["'.jpg'", "name the folder of the images"]),
    "no ending": (text(HEADER + ROWS, "mine"), ["no ending", "Accepted are"]),
    "an empty folder": (lambda folder: read(folder), ["holds no images", "accepted are"]),
    "an empty file": (text(""), ["is empty"]),
    "a header alone": (text(HEADER), ["no rows"]),
    "no header": (text("1,2,3\n4,5,6\n7,8,9\n"), ["first line", "numbers only", "insert a line"]),
    "two columns of one name": (text("size,size,bought\n1,2,yes\n"), ["several columns named 'size'", "rename"]),
    "too many cells": (text(HEADER + "1,red,yes\n2,red,yes,more\n"), ["cannot be read as a table", "line 3", "quotes"]),
    "more cells than names": (
        text(HEADER + "1,2,red,yes\n3,4,red,no\n"),
        ["4 cells, more than its header has names, 3"],
    ),
    "no target": (text(HEADER + ROWS, target=None), ["target= (--target)", "'size', 'colour', 'bought'", "'none'"]),
    "a misspelled target": (text(HEADER + ROWS, target="bougt"), ["no column 'bougt'", "did you mean 'bought'"]),
    "another case": (text(HEADER + ROWS, target="BOUGHT"), ["did you mean 'bought'"]),
    "a missing target": (text(HEADER + ROWS + "3,red,\n"), ["'bought' is missing in 1 of", "row 41", "remove them"]),
    "one class": (text(HEADER + ROWS.replace("no", "yes")), ["one value only, 'yes'", "name another column"]),
    "names as classes": (
        text("size,name\n" + "".join(f"{n}.5,name {n}\n" for n in range(40)), target="name"),
        ["40 different values", "several rows"],
    ),
    "stars": (
        text("size,stars\n" + "".join(f"{n}.5,{n % 5}\n" for n in range(40)), target="stars"),
        ["5 different whole numbers", "task='classification'", "--target-task"],
    ),
    "0.0 and 1.0": (
        text("size,won\n" + "".join(f"{n}.5,{n % 2}.0\n" for n in range(40)), target="won"),
        ["0.0 and 1.0", "task='classification' or task='regression'"],
    ),
    "regression of words": (text(HEADER + ROWS, task="regression"), ["words such as", "needs numbers"]),
    "classification of real numbers": (thing(FRAME, target="x", task="classification"), ["0.5", "no class"]),
    "an unknown task": (text(HEADER + ROWS, task="clasification"), ["did you mean 'classification'"]),
    "a word among numbers": (text(HEADER + ROWS + "ten,red,yes\n"), ["'size'", "'ten' in row 41", "leave them empty"]),
    "decimal commas": (
        text("size;bought\n" + "".join(f"{n},5;{'yes' if n % 2 else 'no'}\n" for n in range(40))),
        ["decimal commas", "'0,5'"],
    ),
    "an infinite number": (text(HEADER + ROWS + "inf,red,yes\n"), ["'size'", "infinite in row 41"]),
    "an unknown kind": (text(HEADER + ROWS, columns={"size": "numeric"}), ["'numeric'", "'number'"]),
    "a kind of no column": (text(HEADER + ROWS, columns={"sise": "number"}), ["no input column 'sise'"]),
    "a number that is none": (text(HEADER + ROWS, columns={"colour": "number"}), ["'colour'", "'blue' in row 1"]),
    "a date that is none": (text(HEADER + ROWS, columns={"colour": "date"}), ["'colour'", "2025-01-31"]),
    "a date of another order": (
        text(
            HEADER + "".join(f"{n + 1}/2/2025,red,{'yes' if n % 2 else 'no'}\n" for n in range(20)),
            columns={"size": "date"},
        ),
        ["'1/2/2025'", "year first"],
    ),
    "nothing but identifiers": (
        thing({"id": [f"a{n}" for n in range(30)], "y": ["a", "b"] * 15}, target="y"),
        ["no column to predict from", "'id': an identifier"],
    ),
    "the target alone": (thing({"y": ["a", "b"] * 15}, target="y"), ["no columns besides 'y'"]),
    "unknown groups": (text(HEADER + ROWS, groups="patient"), ["no column 'patient'", "groups"]),
    "one group": (thing(FRAME, target="y", groups="g"), ["groups", "too few"]),
    "other names of parts": (thing(FRAME, target="y", split_column="g"), ["named 'a'", "train, validation and test"]),
    "an option of images": (text(HEADER + ROWS, image_size=32), ["image_size is for images", "leave it out"]),
    "an option of tables": (
        thing((np.ones((9, 2)), np.arange(9) % 3), columns={"x": "number"}),
        ["columns is for tables"],
    ),
    "a Parquet file that is none": (data(b"PAR1", "mine.parquet"), ["Parquet", "write the file again"]),
    "an array of Python objects": (
        lambda folder: (np.save(folder / "x.npy", np.array([{}]), allow_pickle=True), read(folder / "x.npy")),  # type: ignore[func-returns-value]
        ["x.npy", "numpy.save"],
    ),
    "a target of another file": (
        lambda folder: (np.save(folder / "x.npy", np.ones((9, 2))), read(folder / "x.npy", target="y")),  # type: ignore[func-returns-value]
        ["another .npy file", "'y'"],
    ),
    "a part of targets beside": (
        thing((FRAME[["x"]], np.arange(30) % 2), split_column="nope"),
        ["no column 'nope'", "split_column"],
    ),
    "targets among the inputs": (thing((FRAME, FRAME[["x", "y"]])), ["'x' is among the inputs and the targets"]),
    "no training rows wanted of named parts": (
        thing(FRAME.assign(g=["train", "validation", "test"] * 10), target="y", split_column="g", train_size=-5),
        ["train_size must be from 1 to 10", "-5"],
    ),
    "a group in two parts": (
        thing(FRAME.assign(h=["train", "test"] * 15), target="y", groups="g", split_column="h"),
        ["group 'a'", "'train' and 'test'", "leave groups or split_column out"],
    ),
    "a number": (thing(3), ["a path, a pair", "got int"]),
    "a few rows": (thing(FRAME[:2], target="y"), ["1 rows to train on"]),
    "kinds of columns beside a schema": (again(columns={"x": "category"}), ["columns=", "schema=", "leave one of"]),
    "a task beside a schema": (again(task="regression"), ["task='regression'", "leave one of the two out"]),
    "another scale beside a schema": (again(standardise=False), ["standardise=False", "leave one of the two out"]),
    "another target than the schema's": (again(target="x"), ["target is 'x'", "has 'y'", "leave target out"]),
    "rows and targets of two lengths": (thing((FRAME[["x"]], np.ones(7))), ["30 rows and 7 targets"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_with_the_way_out(name: str, tmp_path: Path) -> None:
    mistake, words = MISTAKES[name]
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=says(*words)) as raised:
        mistake(tmp_path)
    message = str(raised.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert "fashion_mnist" not in message, "names of data sets are no help"


def test_they_are_many() -> None:
    assert len(MISTAKES) >= 40
