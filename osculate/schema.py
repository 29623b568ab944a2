"""Types and ranges that header and tensors of a file may have, checked before anything is made of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

#: Largest number that is accepted.
LARGEST = 1e300
#: A test of one value of a header.
Test = Callable[[Any], bool]


def whole(least: int = 0) -> Test:
    """A whole number that is not smaller."""
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**62


def positive(value: Any) -> bool:
    """A positive and finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < LARGEST


def text(value: Any) -> bool:
    """A text."""
    return isinstance(value, str)


def flag(value: Any) -> bool:
    """True or False."""
    return isinstance(value, bool)


def one_of(known: Sequence[str]) -> Test:
    """One of some names."""
    return lambda value: isinstance(value, str) and value in known


def many(test: Test) -> Test:
    """A list whose entries all pass a test."""
    return lambda value: isinstance(value, list) and all(map(test, value))


def mapping(test: Test | None = None) -> Test:
    """An object whose values all pass a test."""
    return lambda value: isinstance(value, dict) and (test is None or all(map(test, value.values())))


def record(**tests: Test) -> Test:
    """An object with these entries, and perhaps others."""
    return lambda value: (
        isinstance(value, dict) and all(name in value and test(value[name]) for name, test in tests.items())
    )


def require(ok: bool, path: object, what: str) -> None:
    """Raise ValueError if a file is not sound.

    Args:
        ok: Result of a check.
        path: The file.
        what: The fault.

    Raises:
        ValueError: ``ok`` is false.
    """
    if not ok:
        raise ValueError(f"{str(path)!r} is damaged: {what}. Use a copy, or make it again.")


def require_header(path: object, header: Mapping[str, Any], tests: Mapping[str, Test]) -> None:
    """Raise ValueError unless a header has all these entries, each of the right type and range.

    Raises:
        ValueError: an entry is missing or does not pass its test.
    """
    for name, test in tests.items():
        require(name in header, path, f"its header lacks {name!r}")
        require(test(header[name]), path, f"{name!r} is {str(header[name])[:60]!r} in its header")


def require_finite(path: object, tensors: Mapping[str, Tensor]) -> None:
    """Raise ValueError if a tensor holds NaN or infinity.

    Raises:
        ValueError: the message names the tensor.
    """
    for name, tensor in tensors.items():
        require(
            not tensor.is_floating_point() or bool(tensor.isfinite().all()), path, f"{name!r} holds NaN or infinity"
        )


def require_like(path: object, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], what: str) -> None:
    """Raise ValueError unless tensors have the names, shapes and kinds of number of others, which may be on "meta".

    Raises:
        ValueError: the message names the first difference.
    """
    for name in sorted({*tensors, *expected}):
        require(name in expected, path, f"{what} has {name!r}, which its structure has not")
        require(name in tensors, path, f"{what} lacks {name!r}")
        mine, theirs = tensors[name], expected[name]
        require(mine.shape == theirs.shape, path, f"{what} {name!r} has shape {tuple(mine.shape)}")
        same = mine.is_floating_point() == theirs.is_floating_point()
        require(same, path, f"{what} {name!r} has type {mine.dtype}")


def require_indices(path: object, indices: Tensor, size: int, what: str) -> None:
    """Raise ValueError unless a tensor holds different whole numbers from 0 to ``size`` − 1.

    Raises:
        ValueError: another type, a number out of range or twice.
    """
    require(indices.dtype in (torch.int32, torch.int64), path, f"{what} has type {indices.dtype}")
    flat = indices.reshape(-1)
    require(bool(((flat >= 0) & (flat < size)).all()), path, f"{what} is out of range")
    require(len(flat.unique()) == len(flat), path, f"{what} holds a number twice")
