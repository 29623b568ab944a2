"""Rows for training, validation and testing."""

from dataclasses import dataclass

import numpy as np
import torch

from osculate.data.dataset import LARGEST_DEFAULT_VALIDATION
from osculate.data.own.content import Content, listed

TRAIN, VALIDATION, TEST = "train", "validation", "test"
#: Names of the parts in the user's data.
NAMES = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("validation", "val", "valid", "dev"), VALIDATION),
    **dict.fromkeys(("test", "testing"), TEST),
}


@dataclass(frozen=True)
class Sizes:
    """Sizes of the parts, and the seed of the choice.

    Args:
        train_size: Rows to train on, or None for all that are left.
        validation_size: Rows for validation, or None for a tenth of the training rows, at most 2,000.
        test_fraction: Share of the rows for testing, if the data do not say.
        seed: Seed of the choice.
    """

    train_size: int | None = None
    validation_size: int | None = None
    test_fraction: float = 0.2
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Parts:
    """Indices of the rows of each part.

    Args:
        train: Rows to train on.
        validation: Rows for validation.
        test: Rows for testing.
    """

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray

    @classmethod
    def of(cls, content: Content, sizes: Sizes) -> "Parts":
        """The parts that the data name; otherwise random rows, of which those of one group stay together.

        Raises:
            ValueError: a part has another name, a group is in two parts, a size does not fit, or there are too
                few rows or groups.
        """
        rows, source = np.arange(len(content.x)), content.name
        if not 0 < sizes.test_fraction < 1:
            raise ValueError(f"test_fraction must be between 0 and 1, got {sizes.test_fraction}.")
        named = None if content.split is None else _named(content.split, source)
        if named is None:
            rest, test = _held_out(rows, content.groups, max(1, round(sizes.test_fraction * len(rows))), sizes, source)
        else:
            rest, test = rows[named != TEST], rows[named == TEST]
        if named is not None and content.groups is not None:
            _require_whole_groups(content.groups, named, source)
        own = 0 if named is None else int(np.count_nonzero(named == VALIDATION))
        available = int(np.count_nonzero(named == TRAIN)) if own else len(rest)
        if sizes.train_size is not None and not 1 <= sizes.train_size <= available:
            raise ValueError(
                f"train_size must be from 1 to {available}, the training rows of {source}, got {sizes.train_size}."
            )
        if own:
            if sizes.validation_size is not None:
                raise ValueError(
                    f"validation_size is {sizes.validation_size}, but {source} has its own validation part of "
                    f"{own} rows: leave validation_size out."
                )
            rest, validation = rows[named == TRAIN], rows[named == VALIDATION]
            rest, _ = _held_out(rest, None, 0, sizes, source)
        else:
            size = sizes.validation_size
            size = min(len(rest) // 10, LARGEST_DEFAULT_VALIDATION) if size is None else size
            if not 0 <= size < max(len(rest), 1):
                raise ValueError(
                    f"validation_size is {size}, but {source} has {len(rest)} training rows: it must be at least 0 and "
                    "leave some of them to train on."
                )
            groups = None if content.groups is None else content.groups[rest]
            rest, validation = _held_out(rest, groups, size, sizes, source)
        rest = rest[: sizes.train_size]
        if len(rest) < 2:
            raise ValueError(
                f"{source} leaves {len(rest)} rows to train on: add rows, or in Python lower test_fraction."
            )
        return cls(rest, validation, test)


def _named(split: np.ndarray, source: str) -> np.ndarray:
    """The parts by our names."""
    words = [str(word).strip().lower() for word in split]
    if unknown := sorted(set(words) - NAMES.keys()):
        raise ValueError(
            f"the parts of {source} are named {listed(unknown, 5)}: name them train, validation and test, or leave "
            "split_column out."
        )
    named = np.array([NAMES[word] for word in words])
    if not (named == TRAIN).any():
        raise ValueError(f"no row of {source} is in the part {TRAIN!r}: mark those to train on.")
    return named


def _require_whole_groups(groups: np.ndarray, named: np.ndarray, source: str) -> None:
    """Raise ValueError for a group that the named parts divide."""
    first: dict[str, str] = {}
    for group, part in zip(groups.tolist(), named.tolist(), strict=True):
        if first.setdefault(group, part) != part:
            raise ValueError(
                f"the group {group!r} of {source} is in the parts {first[group]!r} and {part!r}: give its rows one "
                "part, or leave groups or split_column out."
            )


def _held_out(
    rows: np.ndarray, groups: np.ndarray | None, size: int, sizes: Sizes, source: str
) -> tuple[np.ndarray, np.ndarray]:
    """Split off rows at random: (the others, at least ``size`` rows that are whole groups)."""
    generator = torch.Generator().manual_seed(sizes.seed)
    if groups is None:
        order = rows[torch.randperm(len(rows), generator=generator).numpy()]
        return order[size:], order[:size]
    different, number = np.unique(groups, return_inverse=True)
    if size and len(different) < 2:
        raise ValueError(
            f"the groups of {source} are too few, {listed(different.tolist(), 3)}, to keep one from training: name "
            "another column, or leave groups out."
        )
    order = torch.randperm(len(different), generator=generator).numpy()
    counts = np.bincount(number)[order]
    enough = 0 if size == 0 else min(int(np.searchsorted(np.cumsum(counts), size)) + 1, len(different) - 1)
    chosen = np.isin(number, order[:enough])
    rest = rows[~chosen]
    return rest[torch.randperm(len(rest), generator=generator).numpy()], rows[chosen]
