"""Targets: names of classes, or real numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from osculate.data.dataset import Scaling, as_targets
from osculate.data.own.columns import SEVERAL, by_number
from osculate.data.own.content import listed
from osculate.registry import choose

CLASSIFICATION, REGRESSION = "classification", "regression"
TASKS = (CLASSIFICATION, REGRESSION)
#: Share of different words in the rows above which classes are taken for a mistake.
LARGEST_SHARE = 0.5
#: Share of the numbers 0, 1, …, that must have data for the others to be classes too.
DENSE = 0.5
#: The way to say what numbers are.
WAYS = "task='classification' or task='regression' (--target-task)"


@dataclass(frozen=True)
class Targets:
    """The quantities to predict.

    Args:
        names: Names of the columns or of the array.
        classes: Names of the classes in the order of their indices, or None for real numbers.
        mean: Training mean of each real target.
        scale: Training standard deviation of each real target.
    """

    names: tuple[str, ...]
    classes: tuple[str, ...] | None = None
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()

    @classmethod
    def of(cls, y: np.ndarray, names: tuple[str, ...], task: str | None, source: str, asks: bool) -> "Targets":
        """Classes or real numbers, by the values or as the user has chosen.

        Args:
            y: Values (N,) or (N, C).
            names: Their names.
            task: The user's choice, or None.
            source: Name of the source.
            asks: True if whole numbers may be classes or amounts, as in tables; in arrays they are classes.

        Raises:
            ValueError: it is not clear from the values, or they do not fit the choice.
        """
        where = f"the target {listed(names)} of {source}"
        if task is not None:
            choose("task", task, TASKS)
        if y.dtype == object:
            if task == REGRESSION:
                raise ValueError(f"{where} holds words such as {str(y[0])!r}, and task='regression' needs numbers.")
            return cls(names, _classes_of_words(y, where))
        if y.ndim == 2 and y.shape[1] > 1:
            if task == CLASSIFICATION or y.dtype.kind in "iu":
                kind = "whole numbers" if y.dtype.kind in "iu" else "real numbers"
                raise ValueError(
                    f"{where} holds {kind} in shape {y.shape}: classes have shape (N,), and regression targets must be "
                    "floating-point."
                )
            return cls(names)
        different = np.unique(y)
        _require_different(different, where)
        whole = bool((different == np.round(different)).all())
        if (task or _task(different, whole, y.dtype.kind == "f", asks, where)) == REGRESSION:
            return cls(names)
        if not whole:
            raise ValueError(f"{where} holds {different[different != np.round(different)][0]:g}, which is no class.")
        return cls(names, _classes_of_numbers(different, len(y), asks, where))

    @property
    def task(self) -> str:
        """Classification or regression."""
        return REGRESSION if self.classes is None else CLASSIFICATION

    def fitted(self, y: np.ndarray, rows: np.ndarray) -> "Targets":
        """The same, with the statistics of these rows."""
        if self.classes is not None:
            return self
        scaling = Scaling.of(torch.from_numpy(_columns(y)[rows].astype(np.float64)))
        return replace(self, mean=tuple(scaling.mean.tolist()), scale=tuple(scaling.scale.tolist()))

    @property
    def scaling(self) -> Scaling | None:
        """The standardisation of real targets; None for classes."""
        if self.classes is not None:
            return None
        return Scaling(torch.tensor(self.mean), torch.tensor(self.scale))

    def tensor(self, y: np.ndarray, source: str) -> Tensor:
        """Indices of classes, int64 (N,), or standardised numbers, float32 (N, C).

        Raises:
            ValueError: there are other classes, words in place of numbers, or another number of targets.
        """
        where = f"the target {listed(self.names)} of {source}"
        if self.classes is None:
            if y.dtype == object or _columns(y).shape[1] != len(self.mean):
                found = f"words such as {str(y[0])!r}" if y.dtype == object else f"{_columns(y).shape[1]} columns"
                raise ValueError(f"{where} has {found}, and the training {len(self.mean)} of real numbers: convert it.")
            values = torch.from_numpy(_columns(y).astype(np.float64))
            mean, scale = (torch.tensor(each, dtype=torch.float64) for each in (self.mean, self.scale))
            return Scaling(mean, scale).apply(values).float()
        words = y if y.dtype == object else _words(y.reshape(-1))
        index = {name: number for number, name in enumerate(self.classes)}
        unknown = sorted({str(word) for word in words} - index.keys())
        if unknown:
            raise ValueError(
                f"{where} has the class {unknown[0]!r}, which training does not know: its classes are "
                f"{listed(self.classes)}."
            )
        return as_targets(torch.tensor([index[str(word)] for word in words], dtype=torch.int64))

    def __str__(self) -> str:
        """One line for the print-out of a schema."""
        if self.classes is not None:
            return f"{CLASSIFICATION}, {len(self.classes)} classes: {listed(self.classes)}"
        numbers = ", ".join(
            f"mean {m:.4g}, standard deviation {s:.4g}" for m, s in zip(self.mean, self.scale, strict=True)
        )
        return f"{REGRESSION}, standardised: {numbers}"

    def content(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return asdict(self)

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> "Targets":
        """The targets that :meth:`content` has written."""
        classes = content["classes"]
        numbers = (tuple(map(float, content[name])) for name in ("mean", "scale"))
        return cls(tuple(content["names"]), None if classes is None else tuple(classes), *numbers)


def _columns(y: np.ndarray) -> np.ndarray:
    return y[:, None] if y.ndim == 1 else y


def _words(values: np.ndarray) -> Sequence[str]:
    return [str(int(value)) if float(value).is_integer() else f"{value:g}" for value in values.tolist()]


def _require_different(different: np.ndarray | list[str], where: str) -> None:
    if len(different) < 2:
        only = f" {different[0]!r}" if len(different) else ""
        raise ValueError(f"{where} has one value only,{only}: there is nothing to learn; name another column.")


def _task(different: np.ndarray, whole: bool, floats: bool, asks: bool, where: str) -> str:
    """The task, from the different values of one target."""
    zero_one = floats and set(different.tolist()) <= {0.0, 1.0}
    if zero_one or (whole and asks and 2 < len(different) <= SEVERAL):
        kind = "the numbers 0.0 and 1.0" if zero_one else f"{len(different)} different whole numbers"
        raise ValueError(f"{where} holds {kind}, which may be classes or amounts: pass {WAYS}.")
    if whole and (not floats or asks) and (not asks or len(different) <= 2):
        return CLASSIFICATION
    return REGRESSION


def _classes_of_words(y: np.ndarray, where: str) -> tuple[str, ...]:
    words = sorted({str(word) for word in y}, key=by_number)
    _require_different(words, where)
    _require_rows(words, len(y), where)
    return tuple(words)


def _classes_of_numbers(different: np.ndarray, rows: int, asks: bool, where: str) -> tuple[str, ...]:
    """Names of classes that are whole numbers: those of the data; in arrays 0, 1, …, where most of these have data.

    Raises:
        ValueError: a class of an array is negative, or most rows would have a class of their own.
    """
    if different[0] < 0 and not asks:
        raise ValueError(f"{where} has the class {int(different[0])}: number classes from 0.")
    _require_rows(_words(different), rows, where)
    number = int(different[-1]) + 1
    return tuple(_words(np.arange(number) if not asks and len(different) >= DENSE * number else different))


def _require_rows(words: Sequence[str], rows: int, where: str) -> None:
    """Raise ValueError if most rows would have a class of their own."""
    if len(words) > SEVERAL and len(words) > LARGEST_SHARE * rows:
        raise ValueError(
            f"{where} has {len(words):,} different values in {rows:,} rows, such as {words[0]!r}, and a class needs "
            "several rows: name the column with the classes, or for amounts pass task='regression' (--target-task)."
        )
