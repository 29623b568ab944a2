"""A prior over the hyperparameters that expects images of low total variation: TV-PredCP."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from osculate.inverse.filters import FilterPrior, class_diagonals
from osculate.inverse.linearised import LinearisedImage
from osculate.inverse.variation import differences

#: Differences between neighbours that stand for all of them, where there are more: κ is then within about 3 %.
DIFFERENCES = 512


@dataclass(frozen=True)
class PredCP:
    r"""p(δ_b) ∝ Exp(κ_b; λ) |∂κ_b/∂δ_b| over one hyperparameter of each block. [antoran2023dip; nalisnick2021]

    .. math:: \kappa_b = \mathbb{E}\, \mathrm{TV}\big(f(\hat\theta) + J_b \theta_b\big), \qquad
              \theta_b \sim N(0, \Sigma_b)

    δ_b is log ℓ_b, and log v_b for 1 × 1 filters. (Given v_b, this integrates over log ℓ_b to a number that depends on
    v_b, for that is what the range of κ_b depends on. As in the document it is left out, so that filters of several
    entries have a joint penalty of v and ℓ, not a density.)

    Total variation is a sum of absolute values of Gaussian variables,

    .. math:: \mathbb{E}\lvert N(m, s^2)\rvert = s\sqrt{2/\pi}\, e^{-m^2/2s^2} + m\, \mathrm{erf}(m/s\sqrt2), \qquad
              s_{bi}^2 = \sum_\delta v_b e^{-\delta/\ell_b}\, t_{b\delta i}

    so that κ, and by differentiation its Jacobian, are closed forms of the hyperparameters: no image is drawn, and the
    network is not needed once t is known.

    Attributes:
        means: m, differences of f(θ̂).
        spreads: t of each block.
        shares: number of differences that each of these represents.
        weight: λ, in nats for a unit of total variation.
    """

    means: Float[Tensor, " T"]
    spreads: list[Float[Tensor, "_ T"]]
    shares: Float[Tensor, " T"]
    weight: float

    @classmethod
    def of(
        cls,
        linearised: LinearisedImage,
        prior: FilterPrior,
        weight: float,
        count: int = DIFFERENCES,
        progress: bool = False,
    ) -> "PredCP":
        """Pull differences between neighbours back through the network.

        Args:
            linearised: h.
            prior: says which weights form filters.
            weight: λ.
            count: largest number of differences; of more, some represent all, large ones more likely (each divided by
                its likelihood).
            progress: show a bar.

        Cost: a backward pass for each difference.
        """
        operator = differences(linearised.image.shape)
        means = operator(linearised.image).double().cpu()
        chosen, shares = _representatives(means.abs(), count)
        units = torch.zeros(len(chosen), operator.measurements).to(linearised.image)
        units[torch.arange(len(chosen)), chosen] = 1
        rows = linearised.rows(operator.adjoint(units), "total variation: Jacobian", progress)
        return cls(means[chosen], [spread.cpu() for spread in class_diagonals(prior, rows)], shares, weight)

    def expected_variation(self, prior: FilterPrior) -> Float[Tensor, " B"]:
        """κ of each block."""
        found = []
        for weights, spread in zip(prior.class_weights(), self.spreads, strict=True):
            deviation = (weights @ spread).clamp(min=1e-30).sqrt()
            ratio = self.means / deviation
            hump = math.sqrt(2 / math.pi) * deviation * torch.exp(-0.5 * ratio.square())
            found.append(self.shares @ (hump + self.means * torch.erf(ratio / math.sqrt(2))))
        return torch.stack(found)

    def __call__(self, prior: FilterPrior) -> Float[Tensor, ""]:
        """−log p of the hyperparameters; differentiable."""
        variance, lengthscale = prior.variance.log(), prior.lengthscale.log()
        for values in (variance, lengthscale):
            if not values.requires_grad:
                values.requires_grad_()
        kappa = self.expected_variation(prior.replace(variance.exp(), lengthscale.exp()))
        by_variance, by_lengthscale = torch.autograd.grad(kappa.sum(), [variance, lengthscale], create_graph=True)
        correlated = torch.zeros(len(kappa), dtype=torch.bool)
        correlated[prior.correlated] = True
        slope = torch.where(correlated, by_lengthscale, by_variance).abs().clamp(min=1e-12)
        return (self.weight * kappa - slope.log() - math.log(self.weight)).sum()


def _representatives(sizes: Float[Tensor, " N"], count: int) -> tuple[Int[Tensor, " T"], Float[Tensor, " T"]]:
    """Numbers of some differences, and how many of all each stands for.

    Drawn in equal strata, as likely as a difference is large, and half of them wherever it is: κ is a sum of |m| where
    the image has edges, of s elsewhere.
    """
    if len(sizes) <= count:
        return torch.arange(len(sizes)), torch.ones_like(sizes)
    likely = sizes + sizes.mean().clamp(min=1e-12)
    likely = count * likely / likely.sum()
    places = torch.arange(count) + torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    chosen = torch.searchsorted(likely.cumsum(0), places).clamp(max=len(sizes) - 1)
    chosen, times = chosen.unique_consecutive(return_counts=True)
    return chosen, times / likely[chosen]
