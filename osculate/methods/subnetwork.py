"""Which single parameters of a network a posterior is over, the others staying at the mode."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from osculate.curvature.columns import Columns, Kind
from osculate.likelihoods import Likelihood
from osculate.parameters import Network
from osculate.registry import choose


@dataclass(frozen=True)
class Units(Kind):
    """One column for each output: the sum of J_nᵀ J_n."""

    name: ClassVar[str] = "units"

    def columns(self, likelihood: Likelihood, f: Tensor, y: Tensor) -> Columns:
        """The unit columns."""
        return Columns.units(f, 1)


@dataclass(frozen=True, eq=False)
class Subnetwork:
    r"""A share of the parameters, those with the highest scores, for a posterior with all their correlations.

    .. math:: \text{magnitude: } |\theta_p|, \qquad
              \text{diag\_variance: } \frac{1}{g_p + \delta}, \qquad
              \text{function\_space: } \frac{\sum_n \sum_c J_{ncp}^2}{g_p + \delta}

    with g the diagonal of G. "diag_variance" keeps the parameters that a diagonal posterior is least sure of
    [daxberger2021b]; "function_space" those whose uncertainty matters most for the outputs on the data.

    Args:
        fraction: the share of the parameters that is kept, above 0 and at most 1.
        select: "magnitude", "random", "diag_variance", "function_space", or scores (P,) of one's own (such as the
            variances of the weights along a training run), the higher the rather kept.
        precision: δ, the prior precision that the scores assume.
        seed: for "random".

    Raises:
        ValueError: a fraction that is no share, a precision that is not positive, or an unknown selection.
    """

    fraction: float
    select: str | Tensor = "magnitude"
    precision: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ValueError(
                f"fraction is the share of parameters that is kept, above 0 and at most 1: {self.fraction}."
            )
        if not self.precision > 0:
            raise ValueError(f"the prior precision must be positive, got {self.precision}.")
        if isinstance(self.select, str):
            choose("selection", self.select, ("magnitude", "random", "diag_variance", "function_space"))

    def mask(
        self, network: Network, diagonals: Callable[[], tuple[Float[Tensor, " P"], Float[Tensor, " P"]]]
    ) -> Bool[Tensor, " P"]:
        """The parameters that are kept.

        Args:
            network: the network at its mode.
            diagonals: gives the diagonals of G and of Σ_n J_nᵀ J_n, in passes over the data that only some need.
        """
        scores = self._scores(network, diagonals).cpu()
        size = network.space.size
        if scores.shape != (size,):
            raise ValueError(f"the scores have shape {tuple(scores.shape)}, the network {size:,} tracked parameters.")
        mask = torch.zeros(size, dtype=torch.bool)
        mask[scores.topk(max(1, round(self.fraction * size))).indices] = True
        return mask

    def _scores(self, network: Network, diagonals: Callable[[], tuple[Tensor, Tensor]]) -> Float[Tensor, " P"]:
        if isinstance(self.select, Tensor):
            return self.select
        if self.select == "magnitude":
            return network.mean.abs()
        if self.select == "random":
            return torch.rand(network.space.size, generator=torch.Generator().manual_seed(self.seed))
        curvature, outputs = diagonals()
        variance = 1 / (curvature + self.precision)
        return variance if self.select == "diag_variance" else outputs * variance
