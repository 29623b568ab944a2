"""A mixture of two zero-mean Gaussians of different width: a prior under which most weights are small."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.priors.isotropic import Isotropic


@dataclass(frozen=True)
class ScaleMixture:
    r"""θ_p ~ π N(0, s₁²) + (1 − π) N(0, s₂²), independently. [blundell2015, eq. 7]

    It is not Gaussian, so that only methods that draw weights support it: ``osc.methods.MeanFieldVI``.

    Args:
        share: π, the weight of the wide component, between 0 and 1.
        wide: Standard deviation s₁.
        narrow: Standard deviation s₂.

    Raises:
        ValueError: a value out of its range.

    >>> round(float(ScaleMixture().log_prob({"w": torch.zeros(1)})), 3)
    4.39
    """

    share: float = 0.5
    wide: float = 1.0
    narrow: float = math.exp(-6)

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share, the weight of the wide component, must be between 0 and 1, got {self.share}.")
        if not 0 < self.narrow <= self.wide < math.inf:
            raise ValueError(
                f"the scales must be positive and finite, narrow at most wide, got narrow={self.narrow}, "
                f"wide={self.wide}."
            )

    def log_prob(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """The exact log density of these named parameters, with all constants."""

        def component(theta: Tensor, weight: float, scale: float) -> Tensor:
            return math.log(weight / scale) - 0.5 * math.log(2 * math.pi) - 0.5 * (theta / scale).square()

        found = [
            torch.logaddexp(component(theta, self.share, self.wide), component(theta, 1 - self.share, self.narrow))
            for theta in parameters.values()
        ]
        return torch.stack([each.sum() for each in found]).sum()

    @property
    def gaussian(self) -> Isotropic:
        """The Gaussian of the same variance."""
        return Isotropic(1 / (self.share * self.wide**2 + (1 - self.share) * self.narrow**2))
