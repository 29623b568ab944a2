"""When to stop training a deep image prior, without knowing the truth."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.checks import require_positive, require_whole


class Stopping(ABC):
    """Looks at every step of a training. One object serves one training."""

    @abstractmethod
    def look(self, image: Float[Tensor, "H W"], misfit: float) -> tuple[bool, bool]:
        """Whether this step is the best so far, and whether to stop.

        Args:
            image: the network's image.
            misfit: mean squared residual of the data.
        """


class Variance(Stopping):
    """Stop when the images of the last steps differ least: they vary before it, and again when noise is fitted.

    [wang2023]

    Args:
        window: steps whose images are compared.
        patience: steps without a new minimum.
        every: steps between two looks.
    """

    def __init__(self, window: int = 50, patience: int = 500, every: int = 1) -> None:
        for name, value in (("window", window), ("patience", patience), ("every", every)):
            require_whole(name, value, 2 if name == "window" else 1)
        self.window, self.patience, self.every = window, patience, every
        self._images: deque[Tensor] = deque(maxlen=window)
        self._least, self._since, self._step = float("inf"), 0, 0

    def look(self, image: Float[Tensor, "H W"], misfit: float) -> tuple[bool, bool]:
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
    """Stop when the residual is as large as the noise. [morozov1966]

    Args:
        noise: σ, in the units of the data.
        factor: the share of σ² that the mean squared residual shall reach.
    """

    def __init__(self, noise: float, factor: float = 1.0) -> None:
        require_positive("the noise", noise)
        require_positive("the factor of the discrepancy principle", factor)
        self._level = factor * noise**2

    def look(self, image: Float[Tensor, "H W"], misfit: float) -> tuple[bool, bool]:
        """Compare with the noise."""
        reached = misfit <= self._level
        return reached, reached


#: Rules by name: each is made for a noise σ, which the first does not need.
STOPPING: dict[str, Callable[[float | None], Stopping]] = {
    "variance": lambda noise: Variance(),
    "discrepancy": lambda noise: Discrepancy(_known(noise)),
}


def _known(noise: float | None) -> float:
    if noise is None:
        raise ValueError("stopping='discrepancy' compares the residual with the noise: give the noise, or 'variance'.")
    return noise
