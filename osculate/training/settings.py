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

#: Named optimisers: ``make(parameters, lr)``, without weight decay: the prior in the objective is the only regulariser,
#: and a second one would move the mode away from that of the posterior.
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


#: Names of loggers, which write what Lightning logs.
LOGGERS = ("csv", "tensorboard")
#: The name of a learning rate that is chosen by trials, and the usual rate.
AUTO, RATE = "auto", 1e-3


@dataclass(frozen=True)
class Settings:
    """Settings of training.

    Args:
        epochs: Number of passes over the data, or the largest number if `patience` is given.
        batch_size: Data per step if the data are tensors or a data set; a loader has its own.
        lr: Largest learning rate; or "auto": a third of the largest of 0.003, 0.01 and 0.03 that has nearly the
            lowest training loss in short trials from the initial weights, which take at most a fifth of the time of the
            training. A training of fewer than 150 steps has 0.001.
        optimizer: Adam, adamw, sgd (momentum 0.9) or adagrad, without weight decay, as the prior is the regulariser.
        schedule: Course of the learning rate: constant, cosine, linear, steps (a tenth after half of the training, a
            hundredth after three quarters) or one_cycle.
        patience: Stop after this number of epochs without a better validation NLL, and keep the best weights; for
            variational methods, the NLL is that at the mean.
        seed: Seed of the order of the data and of dropout, in each epoch.

    Raises:
        ValueError: a value is out of range, or the optimiser or schedule is unknown.

    >>> Settings(epochs=5).lr
    0.001
    >>> Settings(optimizer="adan")
    Traceback (most recent call last):
    ...
    ValueError: unknown optimizer 'adan' (did you mean 'adam'?); known: 'adam', 'adamw', 'sgd', 'adagrad'.
    """

    epochs: int = 20
    batch_size: int = 128
    lr: float | str = RATE
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
        if self.lr != AUTO and (isinstance(self.lr, str) or not (math.isfinite(self.lr) and self.lr > 0)):
            raise ValueError(f"lr must be a positive finite number or {AUTO!r}, got {self.lr!r}.")

    def changed(self, **changes: Any) -> "Settings":
        """Return a copy with some settings changed.

        Raises:
            TypeError: a name is not a setting; the message lists the settings.
        """
        known = [field.name for field in fields(self)]
        for name in changes:
            if name not in known:
                raise TypeError(f"unknown training setting {name!r}; known: {', '.join(known)}.")
        return replace(self, **changes)

    @property
    def first_rate(self) -> float:
        """The learning rate, or the usual one if it is chosen by trials."""
        return RATE if isinstance(self.lr, str) else self.lr

    def factor(self, done: float) -> float:
        """Factor on the learning rate after the fraction `done` in [0, 1) of the training."""
        return SCHEDULES[self.schedule](done)


@dataclass(frozen=True)
class Training:
    """The result of training.

    Args:
        posterior: Posterior of the method, for ``osculate.predict``.
        model: The user's module, trained in place (a list of modules for an ensemble); after ``MAP``, for
            ``osculate.laplace``.
        history: A row for each epoch: ``epoch`` (from 1), ``train_loss`` (the method's objective, nats per datum),
            ``validation_nll`` (nats per datum, if validation data were given; for variational methods, that at the
            mean), ``lr``, ``rate`` if it was chosen by trials, ``round`` if there may be several, further columns of
            the method, and ``seconds``.
    """

    posterior: Any
    model: nn.Module
    history: list[dict[str, int | float]]
