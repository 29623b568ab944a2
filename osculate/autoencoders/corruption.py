"""Noise on images before they are encoded, and how it fades while a denoising autoencoder trains."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.checks import require_positive
from osculate.registry import lookup

#: What noise of some level makes of images, by name.
NOISES: Mapping[str, Callable[[Tensor, float], Tensor]] = {
    "gaussian": lambda x, level: x + level * torch.randn_like(x),
    "mask": lambda x, level: x * (torch.rand_like(x) >= level),
}
#: The level as a share of the first one, where the fraction t of the training is done.
SCHEDULES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "linear": lambda t: 1 - t,
    "cosine": lambda t: 0.5 * (1 + math.cos(math.pi * t)),
    "step": lambda t: 1.0 if t < 0.5 else 0.5 if t < 0.75 else 0.0,
}


@dataclass(frozen=True)
class Corruption:
    r"""x̃ ~ p(x̃|x), encoded in place of x while a VAE trains. [im2017, geras2015]

    .. math:: \operatorname{E}_{p(\tilde x|x)} \operatorname{E}_{q(z|\tilde x)} \log \frac{p(x, z)}{q(z|\tilde x)}
              \le \log p(x)

    The bound of the clean image, with its code by a corrupted one. Training reports it of its own
    images, and of held-out ones the bound with x̃ = x.

    Args:
        noise: "gaussian" (standard deviation ``level``, in units of the pixels) or "mask" (a share of pixels is zero).
        level: at the start.
        schedule: "constant", or "linear", "cosine" or "step" down to none at the end of the training.

    Raises:
        ValueError: an unknown name, a level that is not positive, or a share above 1.

    >>> Corruption("mask", 0.5, "linear").level_at(0.5)
    0.25
    """

    noise: str = "gaussian"
    level: float = 0.25
    schedule: str = "constant"

    def __post_init__(self) -> None:
        lookup("noise", self.noise, NOISES)
        lookup("schedule of the noise", self.schedule, SCHEDULES)
        require_positive("the level of the noise", self.level)
        if self.noise == "mask" and self.level > 1:
            raise ValueError(f"the share of masked pixels is {self.level}: it is at most 1.")

    def level_at(self, done: float) -> float:
        """The level where a fraction of the training is done."""
        return self.level * SCHEDULES[self.schedule](done)

    def __call__(self, x: Float[Tensor, "N *D"], done: float = 0.0) -> Float[Tensor, "N *D"]:
        """x̃ at this fraction of the training."""
        return NOISES[self.noise](x, self.level_at(done))
