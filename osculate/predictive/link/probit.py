"""The probit approximation: logits shrunk by their own variance."""

from dataclasses import dataclass
from math import pi
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from osculate.likelihoods import Likelihood


@dataclass(frozen=True)
class Probit:
    r"""E[response(f)] ≈ response(μ_c / √(1 + π v_c / 8)). [mackay1992b]

    Close for one logit (Bernoulli); for several it ignores their correlations, and is too unsure.
    """

    needs_covariance: ClassVar[bool] = False

    def __call__(
        self, likelihood: Likelihood, mean: Float[Tensor, "M E"], variance: Float[Tensor, "M E"]
    ) -> Float[Tensor, "M E"]:
        """The response at the shrunken logits."""
        return likelihood.response(mean * (1 + pi / 8 * variance).rsqrt())
