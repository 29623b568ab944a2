"""Settings of training, their named choices, and the result."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from osculate.checks import require_whole
from osculate.registry import lookup

#: Named optimisers: ``make(parameters, lr)``. None decays weights: the prior in the objective is the only
#: regulariser, and a second one beside it would move the mode away from the posterior that is fitted there.
OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter], float], Optimizer]] = {
    "adam": lambda parameters, lr: torch.optim.Adam(parameters, lr=lr, fused=True),
    "adamw": lambda parameters, lr: torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0, fused=True),
    "sgd": lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
    "adagrad": lambda parameters, lr: torch.optim.Adagrad(parameters, lr=lr, eps=1e-6),
}

#: Named precisions, in Lightning's words.
PRECISIONS: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed"}

#: Named schedules: the factor on the learning rate at a fraction t in [0, 1) of the training.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "cosine": lambda t: 0.5 * (1 + math.cos(math.pi * t)),
    "linear": lambda t: 1 - t,
    "steps": lambda t: 1.0 if t < 0.5 else 0.1 if t < 0.75 else 0.01,
    "one_cycle": lambda t: t / 0.3 if t < 0.3 else 0.5 * (1 + math.cos(math.pi * (t - 0.3) / 0.7)),
}


@dataclass(frozen=True)
class Settings:
    """Settings of training.

    Args:
        epochs: passes over the data (at most, where `patience` is given).
        batch_size: data per step, where the data are tensors or a data set; a loader brings its own.
        lr: learning rate at its highest.
        optimizer: adam, adamw, sgd (momentum 0.9) or adagrad; none decays weights, as the prior is the regulariser.
        schedule: course of the learning rate: constant, cosine, linear, steps (a tenth after half of the training, a
            hundredth after three quarters) or one_cycle.
        patience: stop after so many epochs without a better validation NLL and keep the best weights; of variational
            methods, the NLL is that of the mean.
        seed: decides the order of the data and the draws of dropout, epoch by epoch.

    Raises:
        ValueError: a value out of its range, or an unknown optimiser or schedule.

    >>> Settings(epochs=5).lr
    0.001
    >>> Settings(optimizer="adan")
    Traceback (most recent call last):
    ...
    ValueError: unknown optimizer 'adan' (did you mean 'adam'?); known: 'adam', 'adamw', 'sgd', 'adagrad'
    """

    epochs: int = 20
    batch_size: int = 128
    lr: float = 1e-3
    optimizer: str = "adam"
    schedule: str = "cosine"
    patience: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        lookup("optimizer", self.optimizer, OPTIMIZERS)
        lookup("schedule", self.schedule, SCHEDULES)
        for name in ("epochs", "batch_size", "patience"):
            value = getattr(self, name)
            if value is not None or name != "patience":
                require_whole(name, value)
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"lr must be a positive finite number, got {self.lr!r}.")

    def changed(self, **changes: Any) -> "Settings":
        """A copy with some settings changed.

        Raises:
            TypeError: a name that is no setting; the message lists those that are.
        """
        known = [field.name for field in fields(self)]
        for name in changes:
            if name not in known:
                raise TypeError(f"unknown training setting {name!r}; known: {', '.join(known)}")
        return replace(self, **changes)

    def factor(self, done: float) -> float:
        """Factor on the learning rate when the fraction `done` in [0, 1) of the training is behind."""
        return SCHEDULES[self.schedule](done)


@dataclass(frozen=True)
class Training:
    """The result of training.

    Args:
        posterior: Posterior of the method; goes into ``osculate.predict``.
        model: the user's module, trained in place (the list of them for an ensemble); after ``MAP``, goes into
            ``osculate.laplace``.
        history: A row for each epoch: ``epoch`` (from 1), ``train_loss`` (the method's objective, nats per datum),
            ``validation_nll`` (nats per datum, where validation data were given; of variational methods, that of the
            network of the mean), ``lr``, what the method adds,
            ``seconds``.
    """

    posterior: Any
    model: nn.Module
    history: list[dict[str, int | float]]
