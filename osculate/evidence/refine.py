r"""The Gaussian variational posterior of the linear model: its mean, and its averaged curvature.

At a saturated softmax the output Hessian Λ_n is nearly zero, so that a Laplace approximation hardly holds the function
values of data that the network fits well: it predicts its own training data badly. The linear model
h(θ, x) = f(θ̃, x) + J(x)(θ − θ̃), which predictions are made with, has a Gaussian posterior N(m, S) of its own, by its
evidence lower bound

.. math:: L(m, S) = \tfrac1T \sum_n \operatorname{E}_{N(\mu_n, V_n)}[\log p(y_n \mid h)]
          - \operatorname{KL}(N(m, S) \,\|\, p), \qquad \mu_n = f_n + J_n (m - \tilde\theta), \quad
          V_n = J_n S J_n^\top .

Where it is stationary, the curvature is averaged over the function values that the posterior holds possible:

.. math:: S^{-1} = \tfrac1T \sum_n J_n^\top \operatorname{E}[\Lambda_n] J_n + \operatorname{diag}(\delta), \qquad
          \tfrac1T \sum_n J_n^\top \operatorname{E}[\nabla \log p(y_n \mid h)] = \delta m .

So the mean is the mode of the linear model for a smoothed likelihood, and the covariance is that of a fit with it.
[opper2009]
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from osculate.batches import Data
from osculate.checks import require_whole
from osculate.curvature.columns import GGN, Fisher
from osculate.curvature.engine import Observation
from osculate.evidence.elbo import divergence
from osculate.evidence.laplace import effective_parameters
from osculate.evidence.linear import data_of, require_all, summed_statistics
from osculate.evidence.maximise import maximise_evidence
from osculate.evidence.mode import Newton
from osculate.inputs import Inputs, moved
from osculate.likelihoods import Likelihood
from osculate.likelihoods.quadrature import normal_nodes, normal_points
from osculate.linalg import root
from osculate.memory import budget
from osculate.posteriors import Gaussian, as_gaussian
from osculate.posteriors.fit import fitted
from osculate.posteriors.linearised import deviations, interacting_outputs, mean_function, moments
from osculate.progress import track
from osculate.registry import choose
from osculate.structures import Curvature

#: Nodes of an expectation over several outputs; even, since they come in pairs ±z.
NODES = 32
#: Outputs that interact, up to which their covariances and averaged Hessians are exact; above, draws stand for both.
EXACT = 32
#: Draws of the function, and of labels for each datum, in place of exact ones.
DRAWS = 16
#: Newton steps for the mean, each solved only as far as a few products with the Jacobian lead.
SOLVER = Newton(max_steps=20, forcing=0.3, max_products=10)
#: Halvings of a step of the covariance that would lower the bound.
HALVINGS = 4
#: Steps at most where the mean moves without limit, and nats that the bound must rise by for another one.
MANY, ENOUGH = 100, 1e-3


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


def refine(
    q: Any,
    data: Data | None = None,
    *,
    trust: float | None = 0.25,
    prior: str | None = None,
    steps: int | None = None,
    tolerance: float = 0.1,
    progress: bool = False,
) -> Gaussian:
    r"""The Gaussian variational posterior of the linear model around the network: its mean and its covariance.

    .. math:: L(m, S) = \tfrac1T \sum_n \operatorname{E}_{N(\mu_n, V_n)}[\log p(y_n \mid h)]
              - \operatorname{KL}(N(m, S) \,\|\, p), \qquad
              S^{-1} = \tfrac1T \sum_n J_n^\top \operatorname{E}[\Lambda_n] J_n + \operatorname{diag}(\delta)

    A Laplace approximation takes the curvature at the mode, where that of a network which fits its training data is
    nearly zero: its predictions are far too uncertain. Here the curvature is averaged over the function values that the
    posterior holds possible, and the mean is that of the linear model, which predictions are made with. [opper2009]

    A step solves a convex problem for the mean at the function variances V_n of the posterior before it, and then
    averages the curvature there, in the structure of ``q``. A step that would lower the bound is shortened: the bound
    never falls. Functions are still linearised around the network: ``via="mode"`` is the network itself, and
    ``via="sampled"`` draws networks around its parameters with the new covariance. For a Gaussian likelihood, the
    structures "full" and "dual" and ``trust=None`` the result is the exact posterior of the linear model.

    Args:
        q: A Gaussian posterior, with its prior and noise.
        data: The data that it was fitted to; only needed for a posterior from a file, or one fitted to an iterator.
        trust: The number c in (m − θ̃)ᵀ Λ (m − θ̃) ≤ c γ, with the precision and the effective number of parameters of
            the posterior before the step: the mean moves by at most √c standard deviations, in the root mean square
            over the directions that the data determine. None moves it all the way.
        prior: Prior of the result: None keeps that of ``q`` and its noise, "evidence" first estimates both by the
            evidence of the linear model.
        steps: Steps at most: by default one, and with ``trust=None`` as many as raise the bound by a thousandth of a
            nat.
        tolerance: Distance to the maximum at which the search for a mean ends, relative to that at its start.
        progress: Show a progress bar.

    Returns:
        A new posterior. ``osc.log_evidence`` of it is its bound.

    Raises:
        TypeError: ``q`` is no Gaussian posterior.
        ValueError: no data, or other data than those of the fit; a likelihood that is not log-concave in f; a bound
            that is not finite.

    Cost: for each step a pass for the variances of the function values, one for the curvature, one for the variances
    that this leads to, and a few with one product J v and one Jᵀ u each. The data are held.

    >>> import osculate as osc
    >>> X, Y = torch.randn(60, 2), torch.randint(3, (60,))
    >>> q = osc.laplace(torch.nn.Linear(2, 3), osc.likelihoods.Categorical(), (X, Y))
    >>> bool(osc.log_evidence(osc.refine(q)) >= osc.evidence.bound(q))
    True
    """
    q = as_gaussian(q, "refine")
    _require_log_concave(q)
    if trust is not None and not trust > 0:
        raise ValueError(f"trust must be positive, or None for no limit, got {trust!r}.")
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must be between 0 and 1, got {tolerance!r}.")
    steps = (MANY if trust is None else 1) if steps is None else steps
    require_whole("steps", steps)
    if prior is not None:
        choose("prior of a refined posterior", prior, ("evidence",))
        q = maximise_evidence(q, mode="linear", data=data)
    with torch.no_grad():
        here = _State.of(q, data)
        for _ in track(range(steps), "refinement", steps, progress):
            there = here.with_mean(trust, tolerance).with_covariance()
            rise, here = float(there.bound - here.bound), there
            if rise < ENOUGH:
                break
    return here.q


@torch.no_grad()
def bound(q: Any, data: Data | None = None) -> Float[Tensor, ""]:
    """The evidence lower bound L(m, S) of the linear model around a network, in nats (see :func:`osculate.refine`).

    Args:
        q: A Gaussian posterior, refined or not.
        data: The data that it was fitted to; only needed for a posterior from a file, or one fitted to an iterator.

    Cost: a pass for the variances of the function values.
    """
    return _State.of(as_gaussian(q, "bound"), data).bound


@dataclass(frozen=True, eq=False)
class _State:
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
    def of(cls, q: Gaussian, data: Data | None) -> "_State":
        """The state of a posterior at the data that it was fitted to."""
        found = [(moved(x, q.network.device), y.to(q.network.device)) for x, y in data_of(q, data)]
        require_all(sum(len(y) for _, y in found), q)
        if q.data is None:  # what a structure keeps, such as the smoothed data of a fit without a matrix, is no data
            q = q.replace(data=found)
        targets = torch.cat([y for _, y in found])
        rows = torch.arange(len(targets), device=q.network.device).split([len(y) for _, y in found])
        state = cls._at(q, [(x, n) for (x, _), n in zip(found, rows, strict=True)], targets)
        _require_same_data(q, state.smoothed)
        return state

    @classmethod
    def _at(cls, q: Gaussian, batches: list[tuple[Inputs, Tensor]], targets: Tensor) -> "_State":
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

    def with_mean(self, trust: float | None, tolerance: float) -> "_State":
        """The mean of largest bound for these variances of the function values, as far as it is trusted."""
        q = self.q
        smoothed = replace(self.smoothed, shift=torch.zeros_like(self.smoothed.shift))
        q_of_mean = q.replace(likelihood=smoothed, offset=None)
        search = SOLVER.search(q_of_mean, self.batches, q.mean)
        gaps = [search.improve(q_of_mean)]
        while gaps[-1] > tolerance * gaps[0] and len(gaps) < SOLVER.max_steps:
            gaps.append(search.improve(q_of_mean, tolerance * gaps[0]))
        offset, length = search.theta - q.network.mean, 1.0
        if trust is not None:
            square = float(offset @ q.precision.multiply(offset))
            allowed = trust * sum(effective_parameters(q).values())
            length = 1.0 if square <= allowed else (allowed / square) ** 0.5
        mean = torch.cat([mean_function(q.replace(offset=offset), x, smoothed.outputs[n]) for x, n in self.batches])
        shift = length * (mean - smoothed.outputs)
        return _State(q.replace(offset=length * offset), self.batches, replace(smoothed, shift=shift))

    def with_covariance(self) -> "_State":
        """The curvature averaged over these function values, or between that and the one before."""
        q, smoothed = self.q, self.smoothed
        kind = GGN() if smoothed.spread.shape[2] <= EXACT else Fisher(DRAWS, torch.Generator().manual_seed(0))
        start = Observation(q.network, q.fit.plan, smoothed, kind, self.batches[0], budget(None, q.network.device))
        passes: Iterator = (iter(self.batches) for _ in range(q.structure.structure.passes))
        averaged = fitted(start, q.structure.structure, passes).curvature
        for halving in range(HALVINGS):
            curvature = averaged if halving == 0 else _between(q.structure, averaged, 0.5**halving)
            if curvature is None:
                break
            fit = replace(q.fit, curvature=curvature, likelihood=q.likelihood)
            there = _State._at(q.replace(fit=fit), self.batches, smoothed.targets)
            if there.bound >= self.bound:
                return there
        return self


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


def _between(one: Curvature, other: Curvature, share: float) -> Curvature | None:
    """The matrix that is this share of the way from one to another; None where states are no sums."""
    mine, theirs = one.tensors(), other.tensors()
    if one.structure.passes > 1 or not mine or any(theirs[name].shape != value.shape for name, value in mine.items()):
        return None
    return one.with_tensors({name: value + share * (theirs[name] - value) for name, value in mine.items()})


def _require_log_concave(q: Gaussian) -> None:
    if not q.likelihood.log_concave:
        raise ValueError(
            f"{type(q.likelihood).__name__} is not log-concave in the outputs: the mean of the linear model is not "
            "unique, and refinement has no safe step. Tune the posterior on held-out data with osc.tune."
        )


def _require_same_data(q: Gaussian, smoothed: Smoothed) -> None:
    """Refuse other data than those of the fit, as the log likelihood of the network shows them."""
    found = q.likelihood.log_likelihood(summed_statistics(q, [(smoothed.outputs, smoothed.targets)]))
    expected = q.likelihood.log_likelihood(q.fit.statistics)
    if not torch.isclose(found.double(), expected.double().to(found.device), rtol=1e-2, atol=1e-2 * q.num_data):
        raise ValueError(
            "the posterior was fitted to other data: the log likelihood of its network was "
            f"{float(expected):,.1f} nats, and is {float(found):,.1f} here. Pass the same data, without random changes."
        )
