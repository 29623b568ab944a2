"""Readers by the kind of file, folder or object."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset

from osculate.data.own.arrays import INPUTS, TARGET, array_content, as_array, npy_content, npz_content
from osculate.data.own.content import Content, Wanted
from osculate.data.own.hugging_face import is_saved, saved_content
from osculate.data.own.pictures import ENDINGS, folder_content, is_pictures
from osculate.data.own.tables import TEXT, frame_of, read_delimited, read_parquet, table_content, with_targets

#: What reads a file, by its ending.
READERS: Mapping[str, Callable[[Path, Wanted], Content]] = {
    **dict.fromkeys(TEXT, lambda path, wanted: table_content(read_delimited(path, wanted.missing), str(path), wanted)),
    ".parquet": lambda path, wanted: table_content(read_parquet(path), str(path), wanted),
    ".npz": npz_content,
    ".npy": npy_content,
}
#: What is read, in words.
ACCEPTED = (
    "tables (.csv, .tsv, .parquet), arrays (.npz with X and y, as numpy.savez writes it, or .npy), folders of images "
    "(one folder for each class, or without labels) and folders of Dataset.save_to_disk"
)
#: Ways out of other kinds of files.
INSTEAD = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "save the sheet as CSV in UTF-8"),
    **dict.fromkeys((".zip", ".gz", ".tar", ".tgz", ".bz2", ".7z"), "unpack it first"),
    **dict.fromkeys(
        (".pkl", ".pickle", ".pt", ".pth", ".joblib"), "it may execute code; write arrays with numpy.savez"
    ),
    **dict.fromkeys((".json", ".jsonl"), "convert it with pandas.read_json(…).to_csv(…)"),
    **dict.fromkeys((".feather", ".arrow"), "convert it with pandas.read_feather(…).to_parquet(…)"),
    ".safetensors": "it holds the weights of a network",
    **dict.fromkeys(ENDINGS, "name the folder of the images"),
}


def content_of(data: Any, wanted: Wanted) -> Content:
    """The content of a path or an object.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: it is of another kind, or not on this machine, or damaged.
        TypeError: an object of another type.
        ImportError: a library that it needs is missing.
    """
    if isinstance(data, str | os.PathLike):
        return _of_path(data, wanted)
    if isinstance(data, TensorDataset):
        data = tuple(data.tensors)
    if isinstance(data, tuple | list) and len(data) == 2 and not _is_row(data):
        x, y = data
        if hasattr(x, "columns") and y is not None:
            if not wanted.targets:
                return _of_object(x, wanted)
            return with_targets(frame_of(x, "the table"), y, "the table", wanted)
        arrays = {INPUTS: x} if y is None else {INPUTS: x, TARGET: y}
        return _of_object(arrays, wanted)
    return _of_object(data, wanted)


def _is_row(data: Any) -> bool:
    """True for a list of numbers, or of lists of them, in place of a pair."""
    return isinstance(data, list) and not any(hasattr(each, "shape") for each in data)


def _of_path(data: str | os.PathLike, wanted: Wanted) -> Content:
    path = Path(data)
    if "://" in str(data):
        raise ValueError(f"{str(data)!r} is an address, and only files of this machine are read: download it first.")
    if path.is_dir():
        if is_saved(path):
            return saved_content(path, wanted)
        if is_pictures(path):
            return folder_content(path, wanted)
        raise ValueError(f"the folder {str(data)!r} holds no images: accepted are {ACCEPTED}.")
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {str(data)!r} relative to {str(Path.cwd())!r}: name one that exists; accepted are "
            f"{ACCEPTED}."
        )
    if (reader := READERS.get(path.suffix.lower())) is not None:
        return reader(path, wanted)
    instead = INSTEAD.get(path.suffix.lower(), "convert it")
    kind = f"the ending {path.suffix!r}" if path.suffix else "no ending"
    raise ValueError(f"{str(data)!r} has {kind}, which is not read: {instead}. Accepted are {ACCEPTED}.")


def _of_object(data: Any, wanted: Wanted) -> Content:
    if isinstance(data, Mapping) and INPUTS in data:
        arrays = {str(name): as_array(values, f"the array {name!r}") for name, values in data.items()}
        return array_content(arrays, "the arrays", wanted)
    if hasattr(data, "columns") or hasattr(data, "to_pandas") or isinstance(data, Mapping):
        return table_content(frame_of(data, "the table"), "the table", wanted)
    if isinstance(data, np.ndarray | torch.Tensor | list):
        return array_content({INPUTS: as_array(data, "the array")}, "the arrays", wanted)
    raise TypeError(
        f"data must be a path, a pair (X, y) of arrays or tensors, a mapping of arrays or columns, or a pandas table, "
        f"got {type(data).__name__}: convert it."
    )
