"""The negative log joint of all data at once, and the conditions under which the evidence is stationary."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.batches import Data, as_batches
from osculate.curvature.columns import GGN
from osculate.curvature.engine import Observation
from osculate.evidence.problem import effective_parameters
from osculate.inputs import Inputs, as_floating, floating, moved
from osculate.likelihoods import Likelihood
from osculate.methods._base import has_labels, require_labels
from osculate.parameters import Network
from osculate.posteriors import Gaussian
from osculate.posteriors.fit import first_rows, fitted, observe
from osculate.priors import Prior
from osculate.structures import Dual, Full, Structure

#: Prior precisions are kept within these bounds.
SMALLEST, LARGEST = 1e-4, 1e6
#: Data at a time.
ROWS = 8192


@dataclass(frozen=True, eq=False)
class Objective:
    """The negative log joint of all data, and the posterior at a point.

    Attributes:
        start: the first batch, with a double-precision network whose parameters are moved to the point in question.
        batches: all of them, on one device.
    """

    start: Observation
    batches: Sequence[tuple[Inputs, Tensor]]

    @classmethod
    def of(cls, network: Network, likelihood: Likelihood, data: Data, memory: str | int | None) -> "Objective":
        """That of a double-precision network, which is moved about from now on, and of data that are read once."""
        batches = [
            (floating(moved(x, network.device), torch.double), as_floating(y.to(network.device), torch.double))
            for x, y in as_batches(data, ROWS)
        ]
        require_labels(any(has_labels(likelihood, y) for _, y in batches))
        return cls(observe(network, likelihood, GGN(), batches[0], memory), batches)

    @property
    def num_data(self) -> int:
        """N."""
        return sum(len(y) for _, y in self.batches)

    @torch.no_grad()
    def posterior(
        self, theta: Float[Tensor, " P"], prior: Prior, likelihood: Likelihood, structure: Structure | None = None
    ) -> Gaussian:
        """The Gaussian at a point; in the smaller of parameters and outputs unless a structure is named."""
        network = self.start.network
        for name, value in network.space.unflatten(theta).items():
            network.module.get_parameter(name).copy_(value)
        rows = self.num_data * self.start.plan.outputs
        chosen = structure or (Dual() if rows < network.space.size else Full())
        fit = fitted(replace(self.start, likelihood=likelihood), chosen, [self.batches])
        return Gaussian(network, fit, likelihood, prior)

    def first_data(self, dtype: torch.dtype) -> tuple[Inputs, Tensor]:
        """A few data in another floating type, for the warning of sampled predictives."""
        x, y = first_rows(*self.batches[0])
        return floating(x, dtype), as_floating(y, dtype)

    @torch.no_grad()
    def value(self, theta: Float[Tensor, " P"], q: Gaussian) -> float:
        """The negative log joint at a point, for the prior and the likelihood of a posterior."""
        parts = q.network.space.unflatten(theta)
        fit = sum(q.likelihood.log_prob(q.network(x, parts), y).sum() for x, y in self.batches)
        return float(-fit - q.prior.log_prob(parts))

    def slope(self, theta: Float[Tensor, " P"], q: Gaussian) -> tuple[float, Float[Tensor, " P"]]:
        """The same with its gradient."""
        leaf = theta.clone().requires_grad_()
        total = 0.0
        with torch.enable_grad():
            parts = q.network.space.unflatten(leaf)
            for x, y in self.batches:
                part = -q.likelihood.log_prob(q.network(x, parts), y).sum()
                part.backward()
                total += part.item()
            prior = -q.prior.log_prob(parts)
            prior.backward()
        assert leaf.grad is not None
        return total + prior.item(), leaf.grad


@dataclass(frozen=True, eq=False)
class Balance:
    """Both sides of the conditions under which the evidence is stationary, δ_g‖θ_g‖² = γ_g and β SSE = N C − Σγ.

    Attributes:
        gamma: γ_g of each group of the prior.
        squares: ‖θ_g‖².
        weighted: δ_g‖θ_g‖².
        data: N C, zero where there is no noise.
        error: β SSE.
    """

    gamma: Tensor
    squares: Tensor
    weighted: Tensor
    data: float
    error: float

    @classmethod
    @torch.no_grad()
    def of(cls, q: Gaussian) -> "Balance":
        """Those of a posterior."""
        space, prior = q.network.space, q.prior
        squares = prior.totals(q.mean.double().square(), space)
        data, error = q.likelihood.noise_balance(q.fit.statistics) if q.likelihood.has_noise else (0.0, 0.0)
        gamma = effective_parameters(q).to(squares).reshape(squares.shape)
        return cls(gamma, squares, squares * prior.precision, float(data), float(error))

    @property
    def best_precision(self) -> Tensor:
        """γ_g / ‖θ_g‖², within bounds."""
        return (self.gamma / self.squares.clamp(min=torch.finfo(torch.double).tiny)).clamp(SMALLEST, LARGEST)

    @property
    def noise_ratio(self) -> float:
        """By how much the noise variance is too small; γ never comes closer to N C than to a hundredth of it."""
        return self.error / max(self.data - self.gamma.sum().item(), 0.01 * self.data)

    @property
    def violation(self) -> float:
        """The largest relative distance of a precision from what its condition asks for, bounds apart."""
        best = self.best_precision * self.squares
        distance = float(((best - self.weighted).abs() / best.clamp(min=1e-12)).max())
        return max(distance, abs(self.noise_ratio - 1) if self.data else 0.0)
