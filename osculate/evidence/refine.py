r"""The Gaussian variational posterior of the linear model: mean and averaged curvature.

At a saturated softmax the output Hessian Λ_n is nearly zero, so that a Laplace approximation hardly holds the function
values of data that the network fits well. The linear model h(θ, x) = f(θ̃, x) + J(x)(θ − θ̃), which predictions are made
with, has a Gaussian posterior N(m, S) of its own, by its evidence lower bound

.. math:: L(m, S) = \tfrac1T \sum_n \operatorname{E}_{N(\mu_n, V_n)}[\log p(y_n \mid h)]
          - \operatorname{KL}(N(m, S) \,\|\, p), \qquad \mu_n = f_n + J_n (m - \tilde\theta), \quad V_n = J_n S J_n^\top,

whose stationary point has the curvature averaged over what the posterior thinks possible [opper2009]:

.. math:: S^{-1} = \tfrac1T \sum_n J_n^\top \operatorname{E}[\Lambda_n] J_n + \operatorname{diag}(\delta), \qquad
          \tfrac1T \sum_n J_n^\top \operatorname{E}[\nabla \log p(y_n \mid h)] = \delta m .
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
from osculate.curvature.columns import GGN
from osculate.curvature.engine import Observation
from osculate.evidence.elbo import divergence
from osculate.evidence.laplace import effective_parameters
from osculate.evidence.linear import data_of, require_all
from osculate.evidence.maximise import maximise_evidence
from osculate.evidence.mode import Newton
from osculate.inputs import Inputs, moved
from osculate.likelihoods import Likelihood
from osculate.likelihoods.quadrature import normal_nodes, normal_points
from osculate.linalg import root
from osculate.memory import budget
from osculate.posteriors import Gaussian, as_gaussian
from osculate.posteriors.fit import fitted
from osculate.posteriors.linearised import interacting_outputs, moments
from osculate.progress import track
from osculate.registry import choose
from osculate.structures import Curvature

#: Nodes of an expectation over several outputs; even, since they come in pairs ±z.
NODES = 32
#: Halvings of a step of the covariance that would lower the bound.
HALVINGS = 4
#: Steps at most where the mean moves without limit, and nats by which a step that is worth another one raises the bound.
MANY, ENOUGH = 100, 1e-3


@dataclass(frozen=True, eq=False)
class Smoothed(Likelihood):
    r"""log p̄(n|f) = E[log p(y_n | f + u_n + ε_n)], ε_n ~ N(0, V_n), of data that are known by their numbers n.

    As a function of f it is concave where log p is, and its Hessian is that of the likelihood, averaged. The
    expectation is taken at fixed nodes: with one output a position those of Gauss–Hermite quadrature, with several
    quasi-random ones.

    Attributes:
        likelihood: p(y|f).
        targets: y of all N data.
        outputs: f of the network at all data.
        spread: R_n with R_n R_nᵀ = V_n at each position.
        shift: u_n, how far the mean of the function is from the network.
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
        y, mean, spread = self.targets[rows], f + self.shift[rows], self.spread[rows]
        total: Tensor | None = None
        for node, weight in zip(*nodes(spread.shape[-1]), strict=True):
            noise = self.likelihood.merge(spread @ node.to(spread), f.shape)
            part = float(weight) * function(mean + noise, y)
            total = part if total is None else total + part
        assert total is not None
        return total

    def log_prob(self, f: Float[Tensor, "N *C"], y: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        return self._average(self.likelihood.log_prob, f, y)

    def score(self, f: Float[Tensor, "N *C"], y: Int[Tensor, " N"]) -> Float[Tensor, "N *C"]:
        return self._average(self.likelihood.score, f, y)

    def local_hessian(self, f: Float[Tensor, "N *C"], y: Int[Tensor, " N"]) -> Float[Tensor, "N T E E"]:
        return self._average(self.likelihood.local_hessian, f, y)

    def check(self, f: Float[Tensor, "N *C"], y: Int[Tensor, " N"]) -> None:
        known = self.outputs[y]
        if f.shape != known.shape or not torch.allclose(
            f, known.to(f), rtol=1e-2, atol=1e-3 * float(known.abs().max())
        ):
            raise ValueError(
                "the network's outputs are not those of the pass before: the data come in another order or are "
                "changed at random at every pass (a shuffling loader, augmentation). Pass them in a fixed order, "
                "without augmentation."
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
@torch.inference_mode(False)
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
    nearly zero: its predictions are far too uncertain. Here it is averaged over what the posterior thinks possible, and
    the mean is that of the linear model, where predictions are made. [opper2009]

    Each step solves a convex problem for the mean at the function variances V_n of the posterior before it, and then
    averages the curvature there, in the structure of ``q``. A step that would lower the bound is shortened, so that the
    bound never falls. The network stays the point around which functions are linearised: ``via="mode"`` is the network,
    and ``via="sampled"`` draws networks around its parameters with the new covariance. For a Gaussian likelihood, the
    structures "full" and "dual" and ``trust=None`` the result is the exact posterior of the linear model.

    Args:
        q: a Gaussian posterior, with its prior and noise.
        data: what it was fitted to, in the same order at every pass; by default the data that ``q`` holds.
        trust: c, in (m − θ̃)ᵀ Λ (m − θ̃) ≤ c γ with the precision and the effective number of parameters of ``q``: the
            mean moves by at most √c standard deviations in the root mean square over the directions that the data
            determine. None moves it all the way.
        prior: None keeps the prior precisions and the noise; "evidence" estimates them by the evidence of the linear
            model first.
        steps: steps at most. By default one, and with ``trust=None`` as many as the bound rises by more than a
            thousandth of a nat.
        tolerance: relative distance in nats to the minimum of the convex problem, as a share of that at its start.
        progress: show a progress bar.

    Returns:
        A new posterior; ``osc.log_evidence`` of it is its bound.

    Raises:
        TypeError: ``q`` is no Gaussian posterior.
        ValueError: no data, or other data than those of ``q``; a likelihood that is not log-concave in f; a structure
            that does not hold the covariances of function values ("diag", "approx_diag", "mixed_diag").

    Cost: for each step a pass for the variances of the function values, one for the curvature, and a few with one
    product J v and one Jᵀ u each.

    >>> import osculate as osc
    >>> X, Y = torch.randn(60, 2), torch.randint(3, (60,))
    >>> q = osc.laplace(torch.nn.Linear(2, 3), osc.likelihoods.Categorical(), (X, Y))
    >>> refined = osc.refine(q)
    >>> bool(osc.log_evidence(refined) > osc.evidence.bound(q))
    True
    """
    q = as_gaussian(q, "refine")
    _require_refinable(q)
    if prior is not None:
        choose("prior", prior, ("evidence",))
        q = maximise_evidence(q, mode="linear", data=data)
    if trust is not None and not trust > 0:
        raise ValueError(f"trust must be positive, or None for no limit, got {trust!r}.")
    steps = (1 if trust is not None else MANY) if steps is None else steps
    require_whole("steps", steps)
    with torch.no_grad():
        here = _Step.of(q, data)
        for _ in track(range(steps), "refinement", steps, progress):
            there = here.mean(trust, tolerance).covariance()
            rise, here = there.bound - here.bound, there
            if rise < ENOUGH:
                break
    return here.q


@torch.no_grad()
def bound(q: Any, data: Data | None = None) -> Float[Tensor, ""]:
    """The evidence lower bound L(m, S) of the linear model around the network of a posterior, in nats.

    Args:
        q: a Gaussian posterior, refined or not.
        data: what it was fitted to; by default the data that it holds.

    Cost: a pass for the variances of the function values.
    """
    return _Step.of(as_gaussian(q, "bound"), data).bound


@dataclass(frozen=True, eq=False)
class _Step:
    """A posterior with the function values that it gives the data.

    Attributes:
        q: the posterior.
        batches: inputs of the data, with their numbers.
        smoothed: the likelihood of the data under the posterior's function values, as a function of the network's.
    """

    q: Gaussian
    batches: list[tuple[Inputs, Tensor]]
    smoothed: Smoothed

    @classmethod
    def of(cls, q: Gaussian, data: Data | None) -> "_Step":
        """The function values of a posterior at the data that it was fitted to."""
        device, batches, targets = q.network.device, [], []
        size = 0
        for x, y in data_of(q, data):
            batches.append((moved(x, device), torch.arange(size, size + len(y), device=device)))
            targets.append(y.to(device))
            size += len(y)
        require_all(size, q)
        return cls._at(q, batches, torch.cat(targets))

    @classmethod
    def _at(cls, q: Gaussian, batches: list[tuple[Inputs, Tensor]], targets: Tensor) -> "_Step":
        outputs, roots, shifts = [], [], []
        for x, _ in batches:
            mean, covariance = moments(q, x, partial(interacting_outputs, q.likelihood))
            f = q.network(x).to(mean)
            outputs.append(f)
            shifts.append(mean - f)
            roots.append(root(covariance))
        parts = (torch.cat(each) for each in (outputs, roots, shifts))
        return cls(q, batches, Smoothed(q.likelihood, targets, *parts))

    @cached_property
    def bound(self) -> Float[Tensor, ""]:
        """L(m, S)."""
        return self._bound(self.q)

    def _bound(self, q: Gaussian) -> Float[Tensor, ""]:
        smoothed = self.smoothed
        rows = torch.arange(len(smoothed.outputs), device=smoothed.outputs.device)
        data = smoothed.log_prob(smoothed.outputs, rows).double().sum()
        return data / q.temperature - divergence(q)

    def mean(self, trust: float | None, tolerance: float) -> "_Step":
        """The posterior at the mean of largest bound for these variances, as far as it is trusted."""
        q, network = self.q, self.q.network
        still = replace(self.smoothed, shift=torch.zeros_like(self.smoothed.shift))
        search = Newton().search(q.replace(likelihood=still), self.batches, q.mean)
        first = gap = search.improve(q.replace(likelihood=still))
        while gap > tolerance * first:
            gap = search.improve(q.replace(likelihood=still), tolerance * first)
        offset = search.theta - network.mean
        length = 1.0
        if trust is not None:
            square = float(offset @ q.precision.multiply(offset.unsqueeze(0))[0])
            length = min(1.0, (trust * sum(effective_parameters(q).values()) / max(square, 1e-30)) ** 0.5)
        shift = torch.cat(search._place.outputs) - self.smoothed.outputs
        moved_to = q.replace(offset=length * offset)
        return _Step(moved_to, self.batches, replace(self.smoothed, shift=length * shift))

    def covariance(self) -> "_Step":
        """The posterior with the curvature averaged over these function values, or nearer to the one before."""
        q = self.q
        structure, memory = q.structure.structure, budget(None, q.network.device)
        start = Observation(q.network, q.fit.plan, self.smoothed, GGN(), self.batches[0], memory)
        passes: Iterator = (iter(self.batches) for _ in range(structure.passes))
        averaged = fitted(start, structure, passes).curvature
        for halving in range(HALVINGS):
            curvature = averaged if not halving else _between(q.structure, averaged, 0.5**halving)
            fit = replace(q.fit, curvature=curvature, likelihood=q.likelihood)
            there = _Step._at(q.replace(fit=fit), self.batches, self.smoothed.targets)
            if there.bound >= self.bound:
                return there
        return self


def _between(one: Curvature, other: Curvature, share: float) -> Curvature:
    theirs = other.tensors()
    return one.with_tensors({name: value + share * (theirs[name] - value) for name, value in one.tensors().items()})


def _require_refinable(q: Gaussian) -> None:
    if q.structure.structure.by_squares or q.structure.structure.name in ("diag",):
        raise ValueError(
            f"structure={q.structure.structure.name!r} does not hold the covariances of the function values at the "
            "training data, which refinement rests on. Use 'kron', 'full' or another structure of whole blocks."
        )
