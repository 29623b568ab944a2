"""Links: integrals of the response of a likelihood over a Gaussian on its outputs."""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.likelihoods import Likelihood, Link
from osculate.likelihoods.quadrature import normal_points
from osculate.linalg import root
from osculate.memory import even_parts, is_sparing

#: Largest number of floats in the function values of one chunk of positions.
NUMBERS = 2**20
#: The same on a GPU, which waits after each chunk, relative to a CPU, whose caches are small.
ON_GPU = 16


@dataclass(frozen=True)
class MonteCarlo:
    r"""E[response(f)] ≈ (1/S) Σ_s response(μ + L ε_s), L Lᵀ the covariance, ε_s a scrambled Sobol set.

    The set is fixed, so that the result is deterministic; its error falls faster than S^{-1/2}.

    Args:
        points: S.
    """

    points: int = 256

    def __call__(
        self,
        likelihood: Likelihood,
        mean: Float[Tensor, "M E"],
        covariance: Float[Tensor, "M E E"] | Float[Tensor, "M E"],
    ) -> Float[Tensor, "M E"]:
        """The integrated response at each position; costs M·S·E² operations, in chunks of bounded memory.

        A likelihood whose outputs are integrated separately passes their variances, and one dimension is enough.
        """
        dimensions = mean.shape[-1] if covariance.ndim > mean.ndim else 1
        white, result = normal_points(self.points, dimensions).to(mean), torch.empty_like(mean)
        numbers = NUMBERS if mean.device.type == "cpu" or is_sparing() else ON_GPU * NUMBERS
        for part in even_parts(len(mean), numbers // (self.points * mean.shape[-1])):
            centre, spread = mean[part], covariance[part]
            if spread.ndim > centre.ndim:
                f = (centre.unsqueeze(-1) + root(spread) @ white.T).permute(2, 0, 1)
            else:
                f = centre + spread.sqrt() * white.unsqueeze(-1)
            result[part] = likelihood.response(f).mean(0)
        return result


@dataclass(frozen=True)
class Probit:
    r"""E[response(f)] ≈ response(μ_c / √(1 + π v_c / 8)). [mackay1992b]

    Close for one logit (Bernoulli); for several it ignores their correlations, and is underconfident.
    """

    needs_covariance: ClassVar[bool] = False

    def __call__(
        self, likelihood: Likelihood, mean: Float[Tensor, "M E"], variance: Float[Tensor, "M E"]
    ) -> Float[Tensor, "M E"]:
        """The response at the shrunken logits."""
        return likelihood.response(mean * (1 + pi / 8 * variance).rsqrt())


@dataclass(frozen=True)
class Bridge:
    r"""The mean of the Dirichlet with

    .. math:: \alpha_c = \frac{1}{v_c}\Big(1 - \frac{2}{C} + \frac{e^{\mu_c}}{C^2} \sum_d e^{-\mu_d}\Big),

    for logits projected onto sum zero and, where their mean variance is above √(C/2), scaled to it. [hobbhahn2022]

    Far less accurate than "mean_field", which is a closed form too, and than "mc", which costs little more; most of all
    for three classes.
    """

    def __call__(
        self, likelihood: Likelihood, mean: Float[Tensor, "M E"], covariance: Float[Tensor, "M E E"]
    ) -> Float[Tensor, "M E"]:
        """The mean of the Dirichlet at each position."""
        count = mean.shape[-1]
        rows, total = covariance.sum(-1), covariance.sum((-2, -1)).unsqueeze(-1)
        mean = mean - mean.mean(-1, keepdim=True)
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        largest = variance.detach().amax(-1, keepdim=True)  # for each position, independent of the rest of the batch
        total = total.clamp(min=1e-12 + torch.finfo(total.dtype).eps * largest)
        # conditioning on Σ f = 0, the sum being independent of the classes
        variance = (variance - rows.square() / total).clamp(min=1e-12 + 1e-6 * largest)
        norm = (variance.mean(-1, keepdim=True) / (count / 2) ** 0.5).clamp(min=1.0)
        mean, variance = mean / norm.sqrt(), variance / norm
        spread = (mean.unsqueeze(-1) - mean.unsqueeze(-2)).clamp(max=80).exp().sum(-1)
        alpha = (1 - 2 / count + spread / count**2) / variance
        return alpha / alpha.sum(-1, keepdim=True)


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


#: The links by name, as they are typed.
REGISTRY: dict[str, Callable[[], Link]] = {
    "mc": MonteCarlo,
    "probit": Probit,
    "bridge": Bridge,
    "mean_field": MeanField,
}
