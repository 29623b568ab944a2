"""The evidence lower bound of the linear model: a likelihood averaged over Gaussian function values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from math import isfinite
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from osculate.batches import Data
from osculate.evidence.elbo import divergence
from osculate.evidence.linear import data_of, require_all, summed_statistics
from osculate.inputs import Inputs, moved, take
from osculate.likelihoods import Likelihood
from osculate.likelihoods.quadrature import normal_nodes, normal_points
from osculate.linalg import root
from osculate.posteriors import Gaussian, as_gaussian
from osculate.posteriors.linearised import deviations, interacting_outputs, mean_function, moments

#: Nodes of an expectation over several outputs; even, since they come in pairs ±z.
NODES = 32
#: Outputs that interact, up to which their covariances and averaged Hessians are exact; above, draws stand for both.
EXACT = 32
#: Draws of the function, and of labels for each datum, in place of exact ones.
DRAWS = 16
#: Data on which a change of the covariance is judged, and standard errors beyond which their verdict is that of all.
JUDGING, ERRORS = 256, 3.0


@torch.no_grad()
def linear_elbo(q: Any, data: Data | None = None) -> Float[Tensor, ""]:
    """The evidence lower bound L(m, S) of the linear model around a network, in nats (see :func:`osculate.refine`).

    Args:
        q: A Gaussian posterior, refined or not.
        data: The data that it was fitted to; only needed for a posterior from a file, or one fitted to an iterator.

    Cost: a pass for the variances of the function values.
    """
    return PosteriorAtData.of(as_gaussian(q, "linear_elbo"), data).bound


@dataclass(frozen=True, eq=False)
class Smoothed(Likelihood):
    r"""log p̄(n|f) = E[log p(y_n | f + u_n + ε_n)], ε_n ~ N(0, V_n), for data that are known by their numbers n.

    As a function of f it is concave where log p is, and its Hessian is that of the likelihood, averaged. The
    expectation is taken at fixed nodes: with one output a position those of Gauss–Hermite quadrature, with several
    quasi-random ones.

    Attributes:
        likelihood: p(y|f).
        targets: Targets y of all N data.
        outputs: Outputs f of the network for all data.
        spread: R_n with R_n R_nᵀ = V_n at each position.
        shift: u_n, the distance from the network to the mean of the function.
    """

    likelihood: Likelihood
    targets: Tensor
    outputs: Float[Tensor, "N *C"]
    spread: Float[Tensor, "N T E K"]
    shift: Float[Tensor, "N *C"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "interacts", self.likelihood.interacts)
        object.__setattr__(self, "class_axis", self.likelihood.class_axis)

    def _average(self, function: Callable[[Tensor, Tensor], Tensor], f: Tensor, rows: Tensor) -> Tensor:
        """E[function(f + u + ε, y)]."""
        y, mean, spread = self.targets[rows], f + self.shift[rows].to(f), self.spread[rows].to(f)
        points, weights = nodes(spread.shape[-1])
        total: Tensor | None = None
        for point, weight in zip(points.to(f), weights.tolist(), strict=True):
            part = weight * function(mean + self.likelihood.merge(spread @ point, f.shape), y)
            total = part if total is None else total + part
        assert total is not None
        return total

    def log_prob(self, f: Float[Tensor, "N *C"], y: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        return self._average(self.likelihood.log_prob, f, y)

    def score(self, f: Float[Tensor, "N *C"], y: Int[Tensor, " N"]) -> Float[Tensor, "N *C"]:
        return self._average(self.likelihood.score, f, y)

    def local_hessian(self, f: Float[Tensor, "N *C"], y: Int[Tensor, " N"]) -> Float[Tensor, "N T E E"]:
        return self._average(self.likelihood.local_hessian, f, y)

    def sampled_root(
        self, f: Float[Tensor, "N *C"], y: Int[Tensor, " N"], samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "V N *C"]:
        """Columns of the likelihood's own sampled roots, each at function values that are drawn anew."""
        targets, mean, spread = self.targets[y], f + self.shift[y].to(f), self.spread[y].to(f)
        columns = []
        for _ in range(samples):
            white = torch.randn(*spread.shape[:2], spread.shape[-1], 1, generator=generator).to(f)
            drawn = mean + self.likelihood.merge((spread @ white).squeeze(-1), f.shape)
            columns.append(self.likelihood.sampled_root(drawn, targets, 1, generator))
        return torch.cat(columns) / samples**0.5

    def check(self, f: Float[Tensor, "N *C"], y: Int[Tensor, " N"]) -> None:
        known = self.outputs[y].to(f)
        if f.shape != known.shape or not torch.allclose(f, known, rtol=1e-2, atol=1e-2 * float(known.abs().max())):
            raise ValueError(
                "the network's outputs are not those of the pass before: the data come in another order or change from "
                "pass to pass (a shuffling loader, random augmentation). Pass them in a fixed order, as they are."
            )

    def counted(self, y: Int[Tensor, " N"]) -> Bool[Tensor, "..."] | None:
        return self.likelihood.counted(self.targets[y])

    def curvature_scale(self, reference: Likelihood) -> Float[Tensor, ""] | float:
        return self.likelihood.curvature_scale(reference)

    def events(self, f: Tensor) -> int:
        return self.likelihood.events(f)

    def split(self, f: Tensor, leading: int = 0) -> Tensor:
        return self.likelihood.split(f, leading)

    def merge(self, t: Tensor, shape: Sequence[int]) -> Tensor:
        return self.likelihood.merge(t, shape)


@lru_cache(maxsize=16)
def nodes(size: int) -> tuple[Float[Tensor, "S K"], Float[Tensor, " S"]]:
    """Nodes of a standard normal in K dimensions, and their weights."""
    if size == 1:
        points, logs = normal_nodes()
        return points.unsqueeze(-1), logs.exp()
    half = normal_points(NODES // 2, size)
    return torch.cat([half, -half]), torch.full((NODES,), 1 / NODES, dtype=torch.double)


@dataclass(frozen=True, eq=False)
class PosteriorAtData:
    """A posterior, and the distribution of the function values at its data.

    Attributes:
        q: The posterior.
        batches: Inputs of the data, with their numbers.
        smoothed: The likelihood of the data, averaged over the posterior's function values.
    """

    q: Gaussian
    batches: list[tuple[Inputs, Tensor]]
    smoothed: Smoothed

    @classmethod
    def of(cls, q: Gaussian, data: Data | None) -> "PosteriorAtData":
        """The state of a posterior at the data that it was fitted to."""
        found = [(moved(x, q.network.device), y.to(q.network.device)) for x, y in data_of(q, data)]
        require_all(sum(len(y) for _, y in found), q)
        if q.data is None:  # what a structure keeps, such as the smoothed data of a fit without a matrix, is no data
            q = q.replace(data=found)
        targets = torch.cat([y for _, y in found])
        rows = torch.arange(len(targets), device=q.network.device).split([len(y) for _, y in found])
        state = cls.at(q, [(x, n) for (x, _), n in zip(found, rows, strict=True)], targets)
        _require_same_data(q, state.smoothed)
        return state

    @classmethod
    def at(cls, q: Gaussian, batches: list[tuple[Inputs, Tensor]], targets: Tensor) -> "PosteriorAtData":
        """The state at these data, whose inputs come with their numbers."""
        each = zip(*(_function_values(q, x) for x, _ in batches), strict=True)
        outputs, spread, mean = (torch.cat(parts) for parts in each)
        return cls(q, batches, Smoothed(q.likelihood, targets, outputs, spread, mean - outputs))

    @cached_property
    def bound(self) -> Float[Tensor, ""]:
        """L(m, S)."""
        q, smoothed = self.q, self.smoothed
        rows = torch.arange(len(smoothed.outputs), device=smoothed.outputs.device)
        found = smoothed.log_prob(smoothed.outputs, rows).double().sum() / q.temperature - divergence(q)
        if not bool(found.isfinite()):
            raise ValueError(
                f"the evidence lower bound of this posterior is {float(found)}: its function values are too uncertain "
                "for the likelihood. Fit with a larger prior precision, or in float64."
            )
        return found

    def rises(self, q: Gaussian) -> bool:
        """True if the bound is not lower with the covariance of another posterior of the same mean.

        Some of the data decide where the sum over all of them is beyond doubt.
        """
        total = len(self.smoothed.targets)
        fixed = float(divergence(self.q) - divergence(q))
        for size in (JUDGING, total):
            rows = torch.randperm(total, generator=torch.Generator().manual_seed(0))[:size].sort().values
            rows = rows.to(self.smoothed.outputs.device)
            there = PosteriorAtData.at(q, self._some(rows), self.smoothed.targets[rows]).smoothed
            before = self.smoothed.log_prob(self.smoothed.outputs[rows], rows).double()
            after = there.log_prob(there.outputs, torch.arange(len(rows), device=rows.device)).double()
            change = (after - before) / q.temperature
            rise = fixed + total * float(change.mean())
            left = max(0.0, 1 - len(rows) / total)  # of the data that decide nothing yet
            error = total * float(change.std()) * (left / len(rows)) ** 0.5 if left else 0.0
            if not isfinite(rise):
                return False
            if left == 0 or abs(rise) > ERRORS * error:
                break
        return rise >= 0

    def _some(self, rows: Int[Tensor, " n"]) -> list[tuple[Inputs, Tensor]]:
        """The inputs of these data, numbered anew."""
        parts, start = [], 0
        for x, numbers in self.batches:
            chosen = rows[(rows >= numbers[0]) & (rows <= numbers[-1])] - numbers[0]
            if len(chosen):
                parts.append((take(x, chosen), torch.arange(start, start + len(chosen), device=rows.device)))
                start += len(chosen)
        return parts


def _function_values(q: Gaussian, x: Inputs) -> tuple[Tensor, Float[Tensor, "n T E K"], Tensor]:
    """Outputs of the network, a root of their covariances, and the mean of the function."""
    with torch.no_grad():
        f = q.network(x).to(q.network.state_dtype)
    if q.likelihood.events(f) <= EXACT:
        mean, covariance = moments(q, x, partial(interacting_outputs, q.likelihood))
        return f, root(covariance), mean
    generator = torch.Generator().manual_seed(0)
    draws = torch.cat([q.likelihood.split(part, 1) for _, part in deviations(q, x, DRAWS, generator)])
    return f, draws.movedim(0, -1) / DRAWS**0.5, mean_function(q, x, f)


def _require_same_data(q: Gaussian, smoothed: Smoothed) -> None:
    """Refuse other data than those of the fit, as the log likelihood of the network shows them."""
    found = q.likelihood.log_likelihood(summed_statistics(q, [(smoothed.outputs, smoothed.targets)]))
    expected = q.likelihood.log_likelihood(q.fit.statistics)
    if not torch.isclose(found.double(), expected.double().to(found.device), rtol=1e-2, atol=1e-2 * q.num_data):
        raise ValueError(
            "the posterior was fitted to other data: the log likelihood of its network was "
            f"{float(expected):,.1f} nats, and is {float(found):,.1f} here. Pass the same data, without random changes."
        )
