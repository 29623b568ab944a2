"""The Laplace bridge: a Dirichlet that matches a Gaussian on logits."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.likelihoods import Likelihood


@dataclass(frozen=True)
class Bridge:
    r"""The mean of the Dirichlet with

    .. math:: \alpha_c = \frac{1}{v_c}\Big(1 - \frac{2}{C} + \frac{e^{\mu_c}}{C^2} \sum_d e^{-\mu_d}\Big),

    for logits projected onto sum zero and scaled as the publication's norm correction prescribes. [hobbhahn2022]
    """

    def __call__(
        self, likelihood: Likelihood, mean: Float[Tensor, "M E"], covariance: Float[Tensor, "M E E"]
    ) -> Float[Tensor, "M E"]:
        """The mean of the Dirichlet at each position."""
        count = mean.shape[-1]
        rows, total = covariance.sum(-1), covariance.sum((-2, -1)).unsqueeze(-1)
        mean = mean - mean.mean(-1, keepdim=True)
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        largest = variance.detach().amax(-1, keepdim=True)  # at each position: the others in the batch must not matter
        total = total.clamp(min=1e-12 + torch.finfo(total.dtype).eps * largest)
        # conditioning on Σ f = 0, the sum being independent of the classes
        variance = (variance - rows.square() / total).clamp(min=1e-12 + 1e-6 * largest)
        norm = (variance.sum(-1, keepdim=True) / (count / 2) ** 0.5).clamp(min=1.0)
        mean, variance = mean / norm.sqrt(), variance / norm
        spread = (mean.unsqueeze(-1) - mean.unsqueeze(-2)).clamp(max=80).exp().sum(-1)
        alpha = (1 - 2 / count + spread / count**2) / variance
        return alpha / alpha.sum(-1, keepdim=True)
