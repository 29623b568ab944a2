"""Real-valued targets with outliers, with Student's t noise."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution, Normal, StudentT as StudentTDistribution

from osculate.likelihoods._base import Link, by_datum
from osculate.likelihoods._elementwise import Elementwise, mix, require_floating, spread, without_noise
from osculate.likelihoods.gaussian import require_scale
from osculate.likelihoods.quadrature import log_gamma_nodes


@dataclass(frozen=True, eq=False)
class StudentT(Elementwise):
    r"""y = f + σ t, t of Student's distribution with ν degrees of freedom, independent over outputs of any shape.

    .. math:: \log p(y \mid f) = -\tfrac{\nu+1}{2} \log\Big(1 + \frac{(y-f)^2}{\nu\sigma^2}\Big) + \text{const},
       \qquad \mathbb{E}\,\Lambda = \frac{\nu+1}{(\nu+3)\,\sigma^2}

    The observed Hessian is negative for outliers, |y − f| > σ√ν, so the curvature is the expected one, the Fisher
    information: a constant. [lange1989] The sampled root multiplies its root with random signs.

    Args:
        df: The degrees of freedom ν; the smaller, the heavier the tails.
        scale: σ in units of the target; the standard deviation is σ √(ν/(ν − 2)), infinite for ν ≤ 2.

    Raises:
        ValueError: ``df`` or ``scale`` is not positive and finite.

    >>> StudentT(df=4.0, scale=2.0).log_prob(torch.zeros(1, 1), torch.zeros(1, 1))
    tensor([-1.6740])
    """

    df: float = 4.0
    scale: float = 1.0
    real_valued: ClassVar[bool] = True
    log_concave: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_scale(self.scale)
        if not 0 < self.df < float("inf"):
            raise ValueError(
                f"the degrees of freedom must be positive and finite, got {self.df}. For normal noise use Gaussian."
            )

    def check(self, f: Float[Tensor, "N *C"], y: Tensor) -> None:
        require_floating(self, y)
        super().check(f, y)

    def log_prob(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, " N"]:
        return by_datum(self.distribution(f).log_prob(y))

    def precision(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N *C"]:
        """The expected Hessian (ν + 1)/((ν + 3) σ²) of each output."""
        return torch.full_like(f, self.curvature_unit)

    @property
    def curvature_unit(self) -> float:
        """(ν + 1)/((ν + 3) σ²)."""
        return (self.df + 1) / (self.df + 3) / self.scale**2

    def score(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N *C"]:
        residual = y.to(f.dtype) - f
        return (self.df + 1) * residual / (self.df * self.scale**2 + residual.square())

    def distribution(self, f: Float[Tensor, "N *C"]) -> StudentTDistribution:
        return StudentTDistribution(self.df, f, self.scale)

    def response(self, f: Float[Tensor, "*S M E"]) -> Float[Tensor, "*S M E"]:
        return f

    def marginal(
        self, mean: Float[Tensor, "N *C"], covariance: Float[Tensor, "N ..."], link: Link, noise: bool = True
    ) -> Distribution:
        r"""A mixture of normals N(μ, v + σ²/w) over nodes of w ~ Gamma(ν/2, rate ν/2); the link is not needed.

        Student's t is exactly this scale mixture. With 64 nodes (more for ν < 2) equidistant in log w up to the 1e-12
        quantiles of w, probabilities are accurate to single precision within that range; beyond it the tails are those
        of a normal. Without noise: N(μ, v).
        """
        variance = covariance.reshape(mean.shape)
        if not noise:
            return without_noise(mean, variance)
        log_w, log_weights = (values.to(mean) for values in log_gamma_nodes(self.df / 2))
        total = variance.unsqueeze(-1) + self.scale**2 * (-log_w).exp()
        return mix(Normal(mean.unsqueeze(-1).expand_as(total), total.sqrt()), log_weights)

    def mixture(self, f: Float[Tensor, "S N *C"], noise: bool = True) -> Distribution:
        return mix(self.distribution(f.movedim(0, -1))) if noise else spread(f)
