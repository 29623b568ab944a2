"""Stopping rules for deep image priors that do not need the true image."""

from abc import ABC, abstractmethod
from collections import deque

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.checks import require_positive, require_whole


class Stopping(ABC):
    """A rule that judges every step of a training. One object serves one training."""

    @abstractmethod
    def look(self, image: Float[Tensor, "H W"], misfit: float, noise: float | None) -> tuple[bool, bool]:
        """Judge a step: True if it is the best so far, and True if training should stop.

        Args:
            image: The network's image.
            misfit: Mean squared residual of the data.
            noise: σ, None if unknown.
        """


class Variance(Stopping):
    """Stop when the images of the last steps differ least: they vary more before, and again when noise is fitted.

    [wang2023]

    Args:
        window: Number of steps whose images are compared.
        patience: Number of steps without a new minimum after which training stops.
        every: Number of steps between two comparisons.
    """

    def __init__(self, window: int = 50, patience: int = 500, every: int = 1) -> None:
        for name, value in (("window", window), ("patience", patience), ("every", every)):
            require_whole(name, value, 2 if name == "window" else 1)
        self.window, self.patience, self.every = window, patience, every
        self._images: deque[Tensor] = deque(maxlen=window)
        self._least, self._since, self._step = float("inf"), 0, 0

    def look(self, image: Float[Tensor, "H W"], misfit: float, noise: float | None) -> tuple[bool, bool]:
        """Compare with the images before it."""
        self._step += 1
        if self._step % self.every:
            return False, False
        self._images.append(image.detach().clone())
        if len(self._images) < self.window:
            return False, False
        spread = float(torch.stack(list(self._images)).var(0).sum())
        if spread < self._least:
            self._least, self._since = spread, 0
            return True, False
        self._since += self.every
        return False, self._since >= self.patience


class Discrepancy(Stopping):
    """Stop when the residual is as large as the noise, which must be known. [morozov1966]

    Args:
        factor: Share of σ² at which the mean squared residual ends the training.
    """

    def __init__(self, factor: float = 1.0) -> None:
        require_positive("the factor of the discrepancy principle", factor)
        self.factor = factor

    def look(self, image: Float[Tensor, "H W"], misfit: float, noise: float | None) -> tuple[bool, bool]:
        """Compare with the noise.

        Raises:
            ValueError: the noise is not known.
        """
        if noise is None:
            raise ValueError(
                "stopping='discrepancy' compares the residual with the noise: pass noise, or use stopping='variance'."
            )
        reached = misfit <= self.factor * noise**2
        return reached, reached


#: Rules by name.
STOPPING: dict[str, type[Stopping]] = {"variance": Variance, "discrepancy": Discrepancy}
