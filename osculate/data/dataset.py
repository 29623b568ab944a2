"""Data sets: the request to a reader and its answer, the three parts, and their scaling."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.data.files import Download, find

#: Inputs and targets.
Part: TypeAlias = tuple[Tensor, Tensor]

#: Largest default number of validation rows, which is otherwise a tenth of the training part.
LARGEST_DEFAULT_VALIDATION = 2_000


@dataclass(frozen=True)
class Scaling:
    """The affine map from original to standardised units, ``z = (x - mean) / scale``.

    Args:
        mean: Values that were subtracted, one for each feature or output.
        scale: Positive values that were divided by.

    >>> s = Scaling.of(torch.tensor([[1.0], [3.0]]))
    >>> s.apply(torch.tensor([[3.0]])), s.undo(torch.tensor([[1.0]]))
    (tensor([[1.]]), tensor([[3.]]))
    """

    mean: Float[Tensor, "*F"]
    scale: Float[Tensor, "*F"]

    @classmethod
    def of(cls, values: Float[Tensor, "N *F"]) -> "Scaling":
        """Mean and standard deviation over the rows; a constant column keeps its scale."""
        scale = values.std(0, correction=0)
        constant = scale <= 1e-6 * values.abs().amax(0)  # a spread below the resolution of float32 is not signal
        return cls(values.mean(0), torch.where(constant, torch.ones_like(scale), scale))

    def apply(self, values: Float[Tensor, "N *F"]) -> Float[Tensor, "N *F"]:
        """Convert original to standardised units."""
        return (values - self.mean) / self.scale

    def undo(self, values: Float[Tensor, "N *F"]) -> Float[Tensor, "N *F"]:
        """Convert standardised to original units."""
        return values * self.scale + self.mean

    def to_float32(self) -> "Scaling":
        """The same in float32."""
        return Scaling(self.mean.float(), self.scale.float())


@dataclass(frozen=True)
class Dataset:
    """A data set in three parts, as tensors ready for a network.

    Inputs are float32. Images have shape (N, channels, height, width) and values in [0, 1]; nothing else is
    done to them. In regression, targets and inputs that are vectors are standardised with the mean and
    standard deviation of the training part; so are the inputs of the UCI classification sets. A log-likelihood
    found in standardised units is in original units ``log p - sum(log target_scale)``, an error or a standard
    deviation is ``target_scale`` times as large.

    Args:
        name: The name it was loaded by.
        train: Inputs and targets to train on. Targets are int64 of shape (N,) for classes, float32 (N, C)
            otherwise, (N, 0) where there are none.
        validation: The same for choosing hyperparameters, taken from the training data; may be empty.
        test: The same for the final evaluation.
        classes: Names of the classes in the order of their indices, or None for regression.
        input_scaling: Standardisation of the inputs, or None.
        target_scaling: Standardisation of the targets, or None.
    """

    name: str
    train: Part
    validation: Part
    test: Part
    classes: tuple[str, ...] | None = None
    input_scaling: Scaling | None = None
    target_scaling: Scaling | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input, without the batch axis."""
        return tuple(self.train[0].shape[1:])

    @property
    def has_targets(self) -> bool:
        """True if there is anything to predict; images without labels have targets of shape (N, 0)."""
        return self.classes is not None or self.train[1].shape[1] > 0

    @property
    def outputs(self) -> int:
        """Number of outputs C that a network for it needs."""
        return len(self.classes) if self.classes is not None else self.train[1].shape[1]

    @property
    def target_mean(self) -> Float[Tensor, " C"] | None:
        """Mean of the original training targets, or None for classification."""
        return None if self.target_scaling is None else self.target_scaling.mean

    @property
    def target_scale(self) -> Float[Tensor, " C"] | None:
        """Standard deviation of the original training targets, or None for classification."""
        return None if self.target_scaling is None else self.target_scaling.scale

    def reconstructing(self) -> "Dataset":
        """The same with each input as its own target, as autoencoders are trained."""
        train, validation, test = ((x, x) for x, _ in (self.train, self.validation, self.test))
        return replace(
            self, train=train, validation=validation, test=test, classes=None, target_scaling=self.input_scaling
        )

    def log_likelihood_in_original_units(self, log_likelihood: float) -> float:
        """Log-likelihood per point in the units of the original targets, from the standardised one.

        The density of y = mean + scale · z is that of z divided by the scale, so each point loses Σ log
        scale.
        """
        return log_likelihood if self.target_scale is None else log_likelihood - float(self.target_scale.log().sum())

    def __repr__(self) -> str:
        """Sizes and shapes instead of pages of numbers."""
        sizes = f"train={len(self.train[0])}, validation={len(self.validation[0])}, test={len(self.test[0])}"
        return f"{type(self).__name__}({self.name!r}, {sizes}, input_shape={self.input_shape}, outputs={self.outputs})"


@dataclass(frozen=True)
class Request:
    """A request to a reader of data sets.

    Args:
        folder: The only folder to look into, or None for the usual places.
        split: Index of the set's own split, from 0.
        splits: The family of splits, "standard", "gap" or "random".
        seed: Seed of random splits and draws.
        download: True to download missing files.
    """

    folder: str | Path | None = None
    split: int = 0
    splits: str = "standard"
    seed: int = 0
    download: bool = True

    def find(self, relative: str, describe: str = "", original: Download | None = None) -> Path:
        """Find a file of the set in the folder of the request, by :func:`osculate.data.files.find`."""
        return find(relative, self.folder, original if self.download else None, describe)


@dataclass(frozen=True)
class Source:
    """The contents of a data set's files, in original units and order.

    Args:
        train: Inputs and targets; uint8 images of shape (N, channels, height, width) keep their type until
            the rows that are wanted have been chosen.
        test: The same.
        classes: Names of the classes, or None for regression.
        validation: The same if the source defines validation rows; None leaves the choice to :func:`assemble`.
        standardise: True to standardise inputs that are vectors also if the targets are classes, as is always done in
            regression.
    """

    train: Part
    test: Part
    classes: tuple[str, ...] | None = None
    validation: Part | None = None
    standardise: bool = False


def assemble(
    name: str,
    source: Source,
    train_size: int | None = None,
    validation_size: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Take the validation part out of the training rows, choose the training rows, and scale everything.

    The seed shuffles the training rows; the first ``validation_size`` become the validation part and the next
    ``train_size`` the training part, so that the validation part is the same for every ``train_size``. A source
    with a validation part of its own keeps that one.

    Args:
        name: The name of the result.
        source: The contents of the files.
        train_size: Rows to train on; None, or more than are left, takes all that are left.
        validation_size: Rows of the validation part; None takes a tenth of the training rows, at most 2,000.
        seed: Seed of the shuffle.

    Raises:
        ValueError: a size is negative or larger than the training data, or ``validation_size`` is given although the
            source has its own validation part.
    """
    available = len(source.train[0])
    if source.validation is not None:
        if validation_size is not None:
            raise ValueError(
                f"validation_size is {validation_size}, but {name!r} has its own validation part of"
                f" {len(source.validation[0])} rows: leave validation_size out."
            )
        validation_size = 0
    elif validation_size is None:
        validation_size = min(available // 10, LARGEST_DEFAULT_VALIDATION)
    if not 0 <= validation_size < available:
        raise ValueError(
            f"validation_size is {validation_size}, but {name!r} has {available} training rows: it must be at least"
            " 0 and leave some of them to train on."
        )
    if train_size is not None and not 1 <= train_size <= available:
        raise ValueError(f"train_size must be from 1 to {available}, the training rows of {name!r}, got {train_size}.")
    order = torch.randperm(available, generator=torch.Generator().manual_seed(seed))
    chosen = order[validation_size : available if train_size is None else validation_size + train_size]
    held_out = _rows(source.train, order[:validation_size]) if source.validation is None else source.validation
    return _scaled(name, [_rows(source.train, chosen), held_out, source.test], source.classes, source.standardise)


def random_test_part(inputs: Tensor, targets: Tensor, size: int, seed: int) -> tuple[Part, Part]:
    """Split off ``size`` random rows for testing: (training part, test part)."""
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    return _rows((inputs, targets), order[size:]), _rows((inputs, targets), order[:size])


def _rows(part: Part, rows: Tensor) -> Part:
    return part[0][rows], part[1][rows]


def as_inputs(x: Tensor) -> Tensor:
    """Inputs for a network: uint8 images become float32 in [0, 1], everything else float32."""
    return x.float() / 255 if x.dtype == torch.uint8 else x.float()


def as_targets(y: Tensor) -> Tensor:
    """Targets for a likelihood: classes int64 (N,), everything else float32 (N, C)."""
    return columns(y.float()) if y.is_floating_point() else y.long()


def columns(y: Tensor) -> Tensor:
    """(N, C) from (N,) or (N, C)."""
    return y[:, None] if y.ndim == 1 else y


def _scaled(name: str, parts: list[Part], classes: tuple[str, ...] | None, standardise: bool) -> Dataset:
    x, y = parts[0]
    vectors = x.ndim == 2 and x.dtype != torch.uint8
    # statistics in float64: values around 1e6 would lose their digits
    inputs = Scaling.of(x.double()) if vectors and (standardise or classes is None) else None
    targets = Scaling.of(columns(y.double())) if classes is None and y.numel() else None
    train, validation, test = [
        (
            as_inputs(inputs.apply(x.double()) if inputs else x),
            targets.apply(columns(y.double())).float() if targets else as_targets(y),
        )
        for x, y in parts
    ]
    scalings = inputs and inputs.to_float32(), targets and targets.to_float32()
    return Dataset(name, train, validation, test, classes, *scalings)
