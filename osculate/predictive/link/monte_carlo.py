"""The response integrated over the full covariance of the outputs, with a fixed quasi-random set."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.quasirandom import SobolEngine

from osculate.likelihoods import Likelihood
from osculate.linalg import root


@dataclass(frozen=True)
class MonteCarlo:
    r"""E[response(f)] ≈ (1/S) Σ_s response(μ + L ε_s), L Lᵀ the covariance, ε_s a scrambled Sobol set.

    The set is always the same, so that the answer is deterministic; its error falls faster than S^{-1/2}.

    Args:
        points: S.
    """

    points: int = 256

    def __call__(
        self,
        likelihood: Likelihood,
        mean: Float[Tensor, "N C"],
        covariance: Float[Tensor, "N C C"] | Float[Tensor, "N C"],
    ) -> Float[Tensor, "N C"]:
        """The integrated response for each datum; costs N·S·C² operations.

        A likelihood whose outputs are integrated one by one gives their variances, and one dimension is enough.
        """
        if covariance.ndim == mean.ndim:
            f = mean + covariance.sqrt() * normal_points(self.points, 1).to(mean).unsqueeze(-1)
        else:
            f = mean + torch.einsum(
                "ncd,sd->snc", root(covariance), normal_points(self.points, mean.shape[-1]).to(mean)
            )
        return likelihood.response(f).mean(0)


@lru_cache(maxsize=16)
def normal_points(points: int, dimensions: int) -> Float[Tensor, "S C"]:
    """A fixed quasi-random sample of a standard normal."""
    uniform = SobolEngine(dimensions, scramble=True, seed=0).draw(points, dtype=torch.double)
    return torch.special.ndtri(uniform.clamp(1e-9, 1 - 1e-9))
