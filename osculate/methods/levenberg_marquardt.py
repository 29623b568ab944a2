"""Levenberg–Marquardt with evidence updates, for networks of up to a few thousand parameters."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.batches import Data, as_batches
from osculate.curvature.columns import GGN
from osculate.curvature.engine import Observation
from osculate.evidence import log_evidence
from osculate.evidence.problem import effective_parameters
from osculate.inputs import Inputs, as_floating, floating, moved
from osculate.likelihoods import Likelihood
from osculate.methods._base import FullBatch, PriorLike, has_labels, require_labels, set_parameters
from osculate.methods.map import MAP, negative_log_joint, require_precisions
from osculate.parameters import Network, require_deterministic_layers, trainable
from osculate.posteriors import Gaussian
from osculate.posteriors.fit import first_rows, fitted, observe
from osculate.priors import Layerwise, Prior
from osculate.registry import choose
from osculate.structures import Dual, Full, Structure

#: Prior precisions are kept within these bounds.
SMALLEST, LARGEST = 1e-4, 1e6
#: Batch size of a pass over the data.
ROWS = 8192


@dataclass(frozen=True, eq=False)
class Objective:
    """The negative log joint of all data, and the posterior at a point.

    Attributes:
        start: The first batch, with a double-precision network whose parameters are set before each evaluation.
        batches: All batches, on one device.
    """

    start: Observation
    batches: Sequence[tuple[Inputs, Tensor]]

    @classmethod
    def of(cls, network: Network, likelihood: Likelihood, data: Data, memory: str | int | None) -> "Objective":
        """The objective of a double-precision network, whose parameters it changes, on data that are read once."""
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
        """The Gaussian at a point; by default in parameter or output space, whichever is smaller."""
        network = self.start.network
        set_parameters(network.module, network.space, theta)
        rows = self.num_data * self.start.plan.outputs
        chosen = structure or (Dual() if rows < network.space.size else Full())
        fit = fitted(replace(self.start, likelihood=likelihood), chosen, [self.batches])
        return Gaussian(fit, likelihood, prior)

    @torch.no_grad()
    def value(self, theta: Float[Tensor, " P"], q: Gaussian) -> float:
        """The negative log joint at a point, for the prior and the likelihood of a posterior."""
        parts = q.network.space.unflatten(theta)
        fit = sum(q.likelihood.log_prob(q.network(x, parts), y).sum() for x, y in self.batches)
        return float(-fit - q.prior.log_prob(parts))

    def slope(self, theta: Float[Tensor, " P"], q: Gaussian) -> tuple[float, Float[Tensor, " P"]]:
        """The negative log joint at a point, and its gradient."""
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
        data: N C, or zero if no noise scale is tuned.
        error: β SSE.
    """

    gamma: Tensor
    squares: Tensor
    weighted: Tensor
    data: float
    error: float

    @classmethod
    @torch.no_grad()
    def of(cls, q: Gaussian, noise: bool = True) -> "Balance":
        """The terms of the conditions for a posterior; without those of the noise if its scale is kept."""
        space, prior = q.network.space, q.prior
        squares = prior.totals(prior.apart(q.mean.double()).square(), space)
        data, error = q.likelihood.noise_balance(q.fit.statistics) if noise and q.likelihood.has_noise else (0.0, 0.0)
        gamma = effective_parameters(q).to(squares).reshape(squares.shape)
        return cls(gamma, squares, squares * prior.precision, float(data), float(error))

    @property
    def best_precision(self) -> Tensor:
        """γ_g / ‖θ_g‖², within bounds."""
        return (self.gamma / self.squares.clamp(min=torch.finfo(torch.double).tiny)).clamp(SMALLEST, LARGEST)

    @property
    def noise_ratio(self) -> float:
        """The factor by which the noise variance is too small; N C − γ is taken as at least a hundredth of N C."""
        return self.error / max(self.data - self.gamma.sum().item(), 0.01 * self.data)

    @property
    def violation(self) -> float:
        """The largest relative violation of a condition, apart from precisions at their bounds."""
        best = self.best_precision * self.squares
        distance = float(((best - self.weighted).abs() / best.clamp(min=1e-12)).max())
        return max(distance, abs(self.noise_ratio - 1) if self.data else 0.0)


#: The prior by default: one precision for each parameter tensor.
LAYERWISE = Layerwise()
#: The noise precision is kept below this, relative to its start.
SHARPEST = 1e10
#: Initial damping μ, its factors after a successful and an unsuccessful step, and the number of trials of a step.
DAMPING, EASED, RAISED, TRIALS = 1.0, 1 / 3, 4.0, 20
#: Decrease of the objective in nats, and length of a step relative to θ, below which the mode is reached.
DECREASE, LENGTH = 1e-6, 1e-4
#: Relative violation of the stationarity conditions below which the evidence counts as stationary.
VIOLATION = 1e-4


class LevenbergMarquardt(FullBatch):
    r"""The mode, the prior precisions and the noise scale together, by damped Gauss–Newton steps on all data.

    .. math:: \theta \leftarrow \theta - \Big(\sum_n J_n^\top \Lambda_n J_n + \operatorname{diag}(\delta) + \mu I
              \Big)^{-1} \nabla_\theta \big[-\log p(D, \theta)\big]

    μ is divided by 3 after a step that lowers the negative log joint; other steps are repeated with 4 μ. After
    ``burn_in`` steps, and then every ``every`` steps, the precisions and the noise scale of a Gaussian likelihood take
    one step of MacKay's fixed point,

    .. math:: \delta_g = \gamma_g / \lVert\theta_g\rVert^2, \qquad
              \beta = (N C - \textstyle\sum_g \gamma_g) / \mathrm{SSE},

    with precisions kept within [1e-4, 1e6]. [foresee1997; mackay1992]

    The initial noise scale decides which maximum of the evidence is found: if it exceeds the standard deviation of the
    targets, the evidence may explain all data as noise, which is a maximum too; a warning is issued in this case.

    In ``osc.train(method, data, epochs=60)`` one epoch is one step; training ends early once steps have become tiny and
    the evidence is stationary. All computations are in double precision, whatever the type of the network, and without
    random numbers. The result is a Gaussian posterior over all trained parameters with structure "full" and the tuned
    prior and noise.

    Args:
        model: The network f_θ; training changes it in place.
        likelihood: p(y|f); the noise scale of a ``Gaussian`` is the initial value of its tuning.
        prior: p(θ) with the initial precisions: a number for one precision of all parameters, or an object of
            ``osc.priors``, which decides which parameters share a precision.
        evidence: True to tune precisions and noise scale, "prior" to tune the precisions and keep the noise scale,
            such as a small one for values without noise, and False to keep both.
        burn_in: Steps before the first update of precisions and noise scale.
        every: Steps from one update to the next.
        memory: Memory for the temporaries of a pass over the data, in bytes or as a string such as "2GB".

    Raises:
        TypeError: ``model`` is not a module, or ``prior`` is neither a number nor a prior.
        ValueError: a precision is not positive, ``evidence`` is unknown, ``burn_in`` or ``every`` is out of range,
            there is nothing to train, or dropout or batch normalisation is in training mode.

    Cost: one Jacobian per step, its Gram matrix of size P or N·C, whichever is smaller, and a few factorisations of it.

    >>> x = torch.linspace(-1, 1, 20)[:, None]
    >>> net = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 1))
    >>> method = osc.methods.LevenbergMarquardt(net, osc.likelihoods.Gaussian())
    >>> done = osc.train(method, (x, torch.sin(3 * x)), epochs=10, progress=False)
    >>> last = done.history[-1]
    >>> 0 < last["gamma"] < 19
    True
    """

    name = "levenberg_marquardt"
    recommended = {"epochs": 100}
    by_evidence = True
    hidden_units = (20,)  # each step factorises a matrix of all weights

    theta: Tensor
    precision: Tensor
    noise: Tensor
    damping: Tensor
    waited: Tensor
    at_rest: Tensor
    converged: Tensor

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        prior: PriorLike = LAYERWISE,
        evidence: bool | str = True,
        burn_in: int = 5,
        every: int = 3,
        memory: str | int | None = None,
    ) -> None:
        super().__init__()
        start = MAP(model, likelihood, prior)  # checks the arguments
        if not isinstance(evidence, bool):
            choose("setting of evidence", evidence, ("prior",))
        if burn_in < 0 or every < 1:
            raise ValueError(
                f"burn_in must be at least 0 and every at least 1 step, got burn_in={burn_in} and every={every}."
            )
        require_deterministic_layers(model)
        self.model, self.likelihood = model, likelihood
        self.evidence, self.every, self.memory = evidence, every, memory
        self._tunes_noise = evidence is True and likelihood.has_noise
        network = Network(model, trainable(model))
        require_precisions(start.prior, type(self).__name__)
        self.prior = start.prior.bind(network.space)
        self._given = likelihood
        self.store(
            theta=network.mean.double(),
            precision=self.prior.precision.detach().double().clone(),
            noise=torch.ones((), dtype=torch.double),  # the variance, relative to that of the given likelihood
            damping=torch.full((), DAMPING, dtype=torch.double),
            waited=torch.tensor(every - burn_in),  # steps since the last update
            at_rest=torch.tensor(False),
            converged=torch.tensor(False),
        )
        self._objective: Objective | None = None

    def choices(self) -> Mapping[str, Any]:
        """Likelihood, and the settings of the evidence updates."""
        return {"likelihood": self._given, "evidence": self.evidence, "every": self.every}

    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """Negative log joint per datum with the present prior and noise, in nats, as for ``MAP``."""
        return negative_log_joint(self.model, self.likelihood, self.prior, x, y, num_data)

    def begin(self, data: Data, epochs: int = 1, seed: int = 0) -> int:
        """Store the data, and compute the posterior at the present weights; :meth:`step` continues from there.

        Args:
            data: Training data; read once and held in double precision.
            epochs: Unused.
            seed: Unused: the method draws no random numbers.

        Returns:
            N.

        Raises:
            ValueError: the data are empty or not finite, the targets do not fit, or the network is too large.
        """
        network = Network(self.model, trainable(self.model)).to(self.theta.device, torch.double)
        if network.space.size > Full().limit:
            raise ValueError(
                f"LevenbergMarquardt factorises matrices of all {network.space.size:,} parameters, and accepts "
                f"{Full().limit:,}. Take a smaller network, or train with MAP or MarginalLikelihood, and use "
                "osc.laplace with structure='kron'."
            )
        as_held = self.theta.to(next(self.model.parameters()).dtype).double()
        if not torch.equal(as_held, network.mean):  # the network was changed in between
            self.theta.copy_(network.mean)
        self._objective = Objective.of(network, self._given, data, self.memory)
        self._update_posterior()
        return self._objective.num_data

    def _update_posterior(self) -> None:
        """Compute the posterior at θ with the present prior and noise."""
        self._set_prior_and_noise()
        self._here = self._required.posterior(self.theta, self.prior, self.likelihood)
        self._balance = Balance.of(self._here, self._tunes_noise)

    def _set_prior_and_noise(self) -> None:
        """Set prior and likelihood from the present precisions and noise."""
        self.prior = self.prior.with_precision(self.precision.clone())
        if self._given.has_noise:
            self.likelihood = self._given.times(self.noise.sqrt())

    @property
    def _required(self) -> "Objective":
        if self._objective is None:
            raise RuntimeError("LevenbergMarquardt has not seen data yet: use osc.train(method, data, epochs=60).")
        return self._objective

    def step(self) -> dict[str, int | float]:
        """Take a fixed-point step in precisions and noise, if one is due, and a step in the parameters.

        Returns:
            A row of the history: ``train_loss`` (negative log joint, nats per datum), ``log_evidence`` (nats),
            ``gamma`` (effective number of parameters) and ``damping`` (μ) after the step.
        """
        objective = self._required
        if self.evidence and (bool(self.at_rest) or int(self.waited) >= self.every):
            self.precision.copy_(self._balance.best_precision)
            if self._tunes_noise:
                self.noise.copy_((self.noise * self._balance.noise_ratio).clamp(min=1 / SHARPEST))
            self.waited.zero_()
            self._set_prior_and_noise()
            self._here = self._here.replace(prior=self.prior, likelihood=self.likelihood)
        before, after, theta = self._improved()
        length = float((theta - self.theta).norm() / theta.norm())
        self.theta.copy_(theta)
        self.waited += 1
        set_parameters(self.model, self._here.network.space, self.theta)
        self._update_posterior()
        self.at_rest.fill_(before - after <= DECREASE and length <= LENGTH)
        stationary = not self.evidence or self._balance.violation < VIOLATION
        self.converged.fill_(bool(self.at_rest) and stationary)
        return {
            "train_loss": after / objective.num_data,
            "log_evidence": log_evidence(self._here).item(),
            "gamma": self._balance.gamma.sum().item(),
            "damping": self.damping.item(),
        }

    def _improved(self) -> tuple[float, float, Float[Tensor, " P"]]:
        """The negative log joint before and after a step, and the new parameters; the old ones if no step helps."""
        q, objective, damping = self._here, self._required, self.damping.clone()
        value, gradient = objective.slope(self.theta, q)
        for _ in range(TRIALS):
            damped = q.replace(prior=q.prior.with_precision(q.prior.precision + self.damping))
            theta = self.theta - damped.precision.solve(gradient)
            new = objective.value(theta, q)
            if new <= value:  # False for NaN
                self.damping *= EASED
                return value, new, theta
            self.damping *= RAISED
        self.damping.copy_(damping)  # no further decrease within rounding
        return value, value, self.theta.clone()

    def result(self) -> Gaussian:
        """The present posterior, with a warning if the evidence has reduced the network to a constant."""
        outputs = self._required.start.plan.outputs
        gamma = float(self._balance.gamma.sum())
        if self.evidence and gamma < outputs + 1:
            way = (
                "a smaller noise scale, such as a tenth of the targets' standard deviation,"
                if self.likelihood.has_noise
                else "a smaller precision"
            )
            warnings.warn(
                f"the effective number of parameters is {gamma:.2g}, about the number of outputs: the evidence "
                "explains the data as noise around a constant, and training cannot recover from this. If the inputs "
                f"predict the targets, start with {way} or with another prior, and standardise inputs and targets.",
                stacklevel=2,
            )
        q = self._required.posterior(self.theta, self.prior, self.likelihood, Full())
        network = Network(self.model, q.network.space.names)
        x, y = first_rows(*self._required.batches[0])
        first_data = floating(x, network.dtype), as_floating(y, network.dtype)
        fit = replace(q.fit, network=network)
        return Gaussian(fit, self.likelihood, self.prior, first_data=first_data, data=self._required.batches)
