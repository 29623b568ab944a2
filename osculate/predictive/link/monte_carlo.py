"""The response integrated over the full covariance of the outputs, with a fixed quasi-random set."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.quasirandom import SobolEngine

from osculate.likelihoods import Likelihood
from osculate.linalg import root

#: Numbers that the function values of one chunk of positions may take.
NUMBERS = 2**24


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
        mean: Float[Tensor, "M E"],
        covariance: Float[Tensor, "M E E"] | Float[Tensor, "M E"],
    ) -> Float[Tensor, "M E"]:
        """The integrated response at each position; costs M·S·E² operations, in chunks of bounded memory.

        A likelihood whose outputs are integrated one by one gives their variances, and one dimension is enough.
        """
        rows = max(1, NUMBERS // (self.points * mean.shape[-1]))
        dimensions = mean.shape[-1] if covariance.ndim > mean.ndim else 1
        white, found = normal_points(self.points, dimensions).to(mean), []
        for centre, spread in zip(mean.split(rows), covariance.split(rows), strict=True):
            if spread.ndim > centre.ndim:
                f = centre + torch.einsum("mef,sf->sme", root(spread), white)
            else:
                f = centre + spread.sqrt() * white.unsqueeze(-1)
            found.append(likelihood.response(f).mean(0))
        return torch.cat(found)


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # what is kept must serve autograd too
def normal_points(points: int, dimensions: int) -> Float[Tensor, "S E"]:
    """A fixed quasi-random sample of a standard normal."""
    uniform = SobolEngine(dimensions, scramble=True, seed=0).draw(points, dtype=torch.double)
    return torch.special.ndtri(uniform.clamp(1e-9, 1 - 1e-9))
