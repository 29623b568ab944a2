"""The user's own arrays."""

from pathlib import Path

import numpy as np
import torch

from osculate.data.dataset import Dataset, Part, Source, as_inputs, as_targets, assemble, random_test_part
from osculate.data.files import read_all_npz

#: Number of classes above which at least this share must have data.
MANY, USED = 1000, 0.1


def read_arrays(path: str | Path, targets: bool = True) -> Part:
    """Read inputs and targets without scaling, as float32 and int64 or float32; uint8 images are divided by 255.

    Args:
        path: An ``.npz`` archive with ``X`` of shape (N, …) and ``y`` of shape (N,) or (N, C). Integers in
            ``y`` are classes 0, 1, …; floating-point numbers are regression targets, returned as (N, C).
        targets: True to read ``y``, which must exist; otherwise targets have shape (N, 0).

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: an array is missing, has the wrong length, shape or type, or a value that is not finite.
    """
    x, y = _pair(path, read_all_npz(path), "X", "y", targets)
    return as_inputs(x), as_targets(y)


def from_arrays(
    path: str | Path,
    *,
    train_size: int | None = None,
    validation_size: int | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A data set from the user's own ``.npz`` archive with ``X`` and, for anything but autoencoders, ``y``.

    The test part is ``X_test`` and ``y_test`` where the archive has them, otherwise random rows. As in every
    other set, regression inputs and targets are standardised by the training part (``dataset.input_scaling``
    and ``dataset.target_scaling`` hold the numbers), uint8 images are divided by 255, and other inputs of a
    classification problem are left as they are.

    Args:
        path: The archive; see :func:`read_arrays` for the arrays.
        train_size: Number of rows to train on; None for all that are left.
        validation_size: Number of rows for validation; None for a tenth of the training rows, at most 2,000.
        test_fraction: Share of the rows for testing if the archive has no ``X_test``; between 0 and 1.
        seed: Seed of the random split.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: an array is missing or wrong, or there are too few rows for the parts that were asked for.
    """
    arrays = read_all_npz(path)
    labelled = "y" in arrays
    if others := [] if labelled else sorted(arrays.keys() - {"X", "X_test"}):
        raise ValueError(
            f"{path} holds {', '.join(map(repr, others))} and no 'y': name the targets 'y' and 'y_test', or, for an "
            "autoencoder, leave all but 'X' and 'X_test' out."
        )
    x, y = _pair(path, arrays, "X", "y", labelled)
    if "X_test" in arrays or "y_test" in arrays:
        train, test = (x, y), _pair(path, arrays, "X_test", "y_test", labelled)
        for name, a, b in zip("Xy", train, test, strict=True):
            if a.shape[1:] != b.shape[1:] or a.dtype != b.dtype:
                raise ValueError(
                    f"{name} in {path} has rows of shape {tuple(a.shape[1:])} ({a.dtype}), {name}_test"
                    f" {tuple(b.shape[1:])} ({b.dtype}): give both one shape and type."
                )
    else:
        if not 0 < test_fraction < 1:
            raise ValueError(f"test_fraction must be between 0 and 1, got {test_fraction}.")
        train, test = random_test_part(x, y, max(1, round(test_fraction * len(x))), seed)
    classes = None
    if not y.is_floating_point():
        classes = tuple(map(str, range(_number_of_classes(path, torch.cat([y, test[1]])))))
    if len(train[0]) < 2:
        raise ValueError(f"{path} leaves {len(train[0])} rows to train on: add rows, or in Python lower test_fraction.")
    return assemble(Path(path).stem, Source(train, test, classes), train_size, validation_size, seed)


def _pair(path: str | Path, arrays: dict[str, np.ndarray], x_key: str, y_key: str, targets: bool = True) -> Part:
    for key in (x_key, y_key) if targets else (x_key,):
        if key not in arrays:
            known = ", ".join(map(repr, arrays)) or "nothing"
            raise ValueError(f"{path} has no array {key!r}; it holds {known}. Write X and y with numpy.savez.")
    x = arrays[x_key]
    y = arrays[y_key] if targets else np.empty((len(x), 0) if x.ndim else 0)
    for key, array in ((x_key, x), (y_key, y)):
        if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool) or np.iscomplexobj(array):
            raise ValueError(f"{key} in {path} must hold real numbers, got type {array.dtype}.")
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise ValueError(f"{key} in {path} is {array[where]} at index {where}: remove or impute such values.")
    if x.ndim < 2:
        raise ValueError(f"{x_key} in {path} must have a batch axis and features, (N, F), got shape {x.shape}.")
    if y.ndim not in (1, 2):
        raise ValueError(f"{y_key} in {path} must have shape (N,) or (N, C), got {y.shape}.")
    if len(x) != len(y) or not len(x):
        raise ValueError(f"{x_key} in {path} has {len(x)} rows and {y_key} {len(y)}: give each input one target.")
    inputs = torch.from_numpy(x if x.dtype == np.uint8 else x.astype(np.float32))
    return inputs, _targets(path, y_key, y)


def _number_of_classes(path: str | Path, labels: torch.Tensor) -> int:
    """C, from classes that are numbered from 0.

    Raises:
        ValueError: there are many classes, of which most have no data: the network would have an output for each.
    """
    number, different = int(labels.max()) + 1, len(labels.unique())
    if number > MANY and different < USED * number:
        raise ValueError(
            f"y in {path} has {different:,} different labels up to {number - 1:,}, and a network has one output for "
            "each number below: number the classes from 0 without gaps, for example with numpy.unique(y, "
            "return_inverse=True)."
        )
    return number


def _targets(path: str | Path, key: str, y: np.ndarray) -> torch.Tensor:
    if np.issubdtype(y.dtype, np.floating):
        return torch.from_numpy(y.astype(np.float64)).reshape(len(y), -1)
    y = y.squeeze(1) if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1:
        raise ValueError(
            f"{key} in {path} has whole numbers in shape {y.shape}: classes have shape (N,), regression targets must"
            " be floating-point."
        )
    if int(y.min()) < 0:
        raise ValueError(f"{key} in {path} has the class {int(y.min())}: number classes from 0.")
    return torch.from_numpy(y.astype(np.int64))
