"""The mean-field approximation of the integrated softmax, pair by pair of classes."""

from dataclasses import dataclass
from math import pi

from jaxtyping import Float
from torch import Tensor

from osculate.likelihoods import Likelihood


@dataclass(frozen=True)
class MeanField:
    r"""p_c ∝ 1 / Σ_d exp(−(μ_c − μ_d) / √(1 + π/8 · Var[f_c − f_d])), with the correlations of logits. [lu2020]"""

    def __call__(
        self, likelihood: Likelihood, mean: Float[Tensor, "M E"], covariance: Float[Tensor, "M E E"]
    ) -> Float[Tensor, "M E"]:
        """The integrated probabilities at each position."""
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        differences = variance.unsqueeze(-1) + variance.unsqueeze(-2) - covariance - covariance.mT
        margin = (mean.unsqueeze(-1) - mean.unsqueeze(-2)) * (1 + pi / 8 * differences.clamp(min=0)).rsqrt()
        return (-(-margin).logsumexp(-1)).softmax(-1)
