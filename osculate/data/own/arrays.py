"""Arrays: ``.npy`` and ``.npz`` files, NumPy arrays and tensors in memory."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from osculate.data.files import DAMAGED, SHARE, read_all_npz
from osculate.data.own.array_inputs import BRIGHTEST
from osculate.data.own.content import Content, Wanted, listed
from osculate.data.own.tables import NO_TARGET
from osculate.memory import free, readable

#: Names of the arrays of an archive.
INPUTS, TARGET, OF_TEST = "X", "y", "_test"


def npz_content(path: Path, wanted: Wanted) -> Content:
    """An archive with ``X``, and with ``y`` or another target; ``X_test`` and ``y_test`` are for testing."""
    return array_content(read_all_npz(path), str(path), wanted)


def npy_content(path: Path, wanted: Wanted) -> Content:
    """A file of inputs; the target is another file, which is found if the names differ by "inputs" and "targets"."""
    arrays = {INPUTS: _npy(path)}
    target = wanted.target
    if target in (None, (TARGET,)) and "inputs" in path.name:  # a schema knows the targets as y
        beside = path.with_name(path.name.replace("inputs", "targets"))
        target = (str(beside),) if beside.is_file() else target
    if wanted.targets and target is not None and target != (NO_TARGET,):
        if not target[0].endswith(".npy") or not Path(target[0]).is_file():
            raise ValueError(
                f"the target of {path} is the path of another .npy file, and {target[0]!r} is none: pass one, or write "
                "X and y into one file with numpy.savez."
            )
        arrays[TARGET] = _npy(Path(target[0]))
    return array_content(arrays, str(path), replace(wanted, target=None))


def _npy(path: Path) -> np.ndarray:
    size, available = path.stat().st_size, free(torch.device("cpu"))
    if size > SHARE * available:
        raise ValueError(
            f"{path} has {readable(size)}, and {readable(available)} of memory are free: use osc.data.stream, which "
            "reads one batch at a time."
        )
    try:
        return np.load(path, allow_pickle=False)
    except DAMAGED as error:
        reason = str(error).rstrip(".")
        raise ValueError(
            f"{path} cannot be read as an array of numbers ({reason}): write it with numpy.save."
        ) from error


def array_content(arrays: Mapping[str, np.ndarray], source: str, wanted: Wanted) -> Content:
    """Inputs, targets, groups and parts from named arrays.

    Raises:
        ValueError: an array is missing, or has the wrong length, shape or type, or a value that is not finite.
    """
    known = listed(list(arrays))
    if INPUTS not in arrays:
        raise ValueError(f"{source} has no array {INPUTS!r}; it holds {known}. Write X and y with numpy.savez.")
    target = _target(arrays, source, wanted)
    roles = {"groups": wanted.groups, "split_column": wanted.split_column}
    for role, name in roles.items():
        if name is not None and name not in arrays:
            raise ValueError(f"{source} has no array {name!r} for {role}: it holds {known}.")
    groups, split = (None if name is None else _column(arrays[name], name, source) for name in roles.values())
    x = _inputs(arrays[INPUTS], INPUTS, source)
    y = None if target is None else _targets(arrays[target], target, source)
    for name, values in ((target, y), (wanted.groups, groups), (wanted.split_column, split)):
        if values is not None and len(values) != len(x):
            raise ValueError(f"{INPUTS} in {source} has {len(x)} rows and {name} {len(values)}: give each input one.")
    if not len(x):
        raise ValueError(f"{INPUTS} in {source} has 0 rows: pass an array that holds data.")
    own_test = [name for name in (INPUTS, target) if name and f"{name}{OF_TEST}" in arrays]
    names = () if target is None else (target,)
    if not wanted.parts or not own_test:
        return Content(source, x, y, names, groups, split)
    if groups is not None or split is not None:
        raise ValueError(f"{source} has its own test part {own_test[0]}{OF_TEST}: leave groups and split_column out.")
    x_test = _of_test(arrays, INPUTS, x, source)
    y_test = None if target is None or y is None else _of_test(arrays, target, y, source)
    if y_test is not None and len(x_test) != len(y_test):
        raise ValueError(f"{INPUTS}{OF_TEST} and {target}{OF_TEST} in {source} differ in length: give each input one.")
    own = np.array(["train"] * len(x) + ["test"] * len(x_test), dtype=object)
    both = None if y is None or y_test is None else np.concatenate([y, y_test])
    return Content(source, np.concatenate([x, x_test]), both, names, split=own)


def _of_test(arrays: Mapping[str, np.ndarray], name: str, values: np.ndarray, source: str) -> np.ndarray:
    """The array of the test part beside that of the training part."""
    other = f"{name}{OF_TEST}"
    if other not in arrays:
        known = listed(list(arrays))
        raise ValueError(f"{source} has no array {other!r}; it holds {known}. Write X and y with numpy.savez.")
    test = (_inputs if name == INPUTS else _targets)(arrays[other], other, source)
    if values.shape[1:] != test.shape[1:] or values.dtype != test.dtype:
        raise ValueError(
            f"{name} in {source} has rows of shape {values.shape[1:]} ({values.dtype}), {other} {test.shape[1:]} "
            f"({test.dtype}): give both one shape and type."
        )
    return test


def _target(arrays: Mapping[str, np.ndarray], source: str, wanted: Wanted) -> str | None:
    """The name of the target array, or None if the inputs are all there is."""
    if not wanted.targets or wanted.target == (NO_TARGET,) or wanted.target == ():
        return None
    if wanted.target is not None:
        if len(wanted.target) > 1 or wanted.target[0] not in arrays:
            raise ValueError(
                f"{source} has no array {', '.join(wanted.target)!r} for target: it holds {listed(list(arrays))}."
            )
        return wanted.target[0]
    if TARGET in arrays:
        return TARGET
    known = {INPUTS, INPUTS + OF_TEST, wanted.groups, wanted.split_column}
    if others := sorted(arrays.keys() - known):
        raise ValueError(
            f"{source} holds {listed(others)} and no 'y': name the targets 'y' and 'y_test' or pass target=, or, for "
            "an autoencoder, leave all but 'X' and 'X_test' out."
        )
    return None


def _inputs(array: np.ndarray, name: str, source: str) -> np.ndarray:
    _require_numbers(array, name, source)
    if array.ndim < 2:
        raise ValueError(f"{name} in {source} must have a batch axis and features, (N, F), got shape {array.shape}.")
    if array.ndim == 4 and array.dtype.kind in "iu" and array.dtype != np.uint8:  # bytes in a wider type
        lowest, highest = (int(value) for value in (array.min(initial=0), array.max(initial=0)))
        if lowest >= 0 and BRIGHTEST < highest <= 255:
            array = array.astype(np.uint8)
    return array if array.dtype == np.uint8 else array.astype(np.float64 if array.itemsize > 4 else np.float32)


def _targets(array: np.ndarray, name: str, source: str) -> np.ndarray:
    """Words as objects, whole numbers as int64, others as float64."""
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} in {source} must have shape (N,) or (N, C), got {array.shape}.")
    if array.dtype.kind in "USOb" and array.size == len(array):
        if any(value is None or value != value for value in array.reshape(-1).tolist()):
            raise ValueError(f"{name} in {source} lacks values: remove these rows, and predict them afterwards.")
        return np.array([str(value) for value in array.reshape(-1).tolist()], dtype=object)
    _require_numbers(array, name, source)
    array = array.squeeze(1) if array.ndim == 2 and array.shape[1] == 1 else array
    return array.astype(np.int64 if array.dtype.kind in "iu" else np.float64)


def _column(array: np.ndarray, name: str, source: str) -> np.ndarray:
    if array.ndim != 1:
        raise ValueError(f"{name} in {source} must have shape (N,), got {array.shape}.")
    return np.array([str(value) for value in array.tolist()], dtype=object)


def _require_numbers(array: np.ndarray, name: str, source: str) -> None:
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} in {source} must hold real numbers, got type {array.dtype}: convert it, or pass a table (.csv, "
            ".parquet, pandas), whose columns may hold words."
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name} in {source} is {array[where]} at index {where}: remove or impute such values.")


def as_array(thing: Any, name: str) -> np.ndarray:
    """A NumPy array from an array, a tensor, a pandas series or a list.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(thing, torch.Tensor):
        return thing.detach().cpu().numpy()
    if hasattr(thing, "to_numpy"):
        return np.asarray(thing.to_numpy())
    try:
        return np.asarray(thing)
    except ValueError as error:
        raise TypeError(f"{name} is no array ({error}): give all rows one length.") from error
