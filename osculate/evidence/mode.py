"""The mode of the linear model, by Newton steps with conjugate gradients or by gradients of minibatches."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.batches import Data, is_pair, number_of_batches
from osculate.curvature.columns import GGN
from osculate.curvature.linearisation import Linearisation
from osculate.evidence.linear import LinearModel, Place, data_of, require_all, summed_statistics
from osculate.inputs import Inputs, floating, moved, take
from osculate.likelihoods import Gaussian as GaussianNoise
from osculate.linalg import conjugate_gradients
from osculate.posteriors import Gaussian, as_gaussian
from osculate.registry import made
from osculate.structures import Dual, Full
from osculate.structures.blocks.dual import DualBlock, DualPrecision

#: Largest number of shortenings of a Newton step.
SHORTENINGS = 20
#: Number of steps, the last ones, that show whether a search stands still.
LAST = 3


class Search(ABC):
    """A search for θ_* that continues from its last point when prior or noise change.

    Attributes:
        theta: The best θ so far.
        gains: Nats by which each step has lowered the objective of the present prior and noise, by its slope; empty
            where that is not known.
    """

    theta: Float[Tensor, " P"]
    gains: Sequence[float] = ()

    def stands(self, tolerance: float, steps: int) -> bool:
        """True if the last step did not move, or if steps like the best of the last few would gain too little.

        Args:
            tolerance: Nats that further steps must gain together.
            steps: Number of further steps.
        """
        last = self.gains[-LAST:]
        return bool(last) and (last[-1] == 0 or (len(last) == LAST and max(last) * steps <= tolerance))

    @abstractmethod
    def improve(self, q: Gaussian, tolerance: float = 0.0) -> float:
        """Move closer to the mode for the prior and the noise of ``q``.

        Args:
            q: The posterior.
            tolerance: Distance in nats within which θ need not move.

        Returns:
            The approximate distance of the objective from its minimum at the last θ with a gradient, in nats:
            ½ gᵀ Λ⁻¹ g with the posterior precision at θ̃.
        """

    @abstractmethod
    def statistics(self, q: Gaussian) -> dict[str, Tensor]:
        """The sums from which the log likelihood of the linear model at ``theta`` follows."""

    def evidence(self, q: Gaussian) -> Float[Tensor, ""]:
        """The evidence at ``theta``, which has no first-order effect on it at the mode."""
        return evidence_at(q, self.theta, self.statistics(q))


def evidence_at(q: Gaussian, theta: Float[Tensor, " P"], statistics: Mapping[str, Tensor]) -> Float[Tensor, ""]:
    """The evidence at given parameters of the linear model, with the statistics of its likelihood there.

    Elsewhere than at the mode it is a lower bound for Gaussian noise.
    """
    statistics = {name: value.double() for name, value in statistics.items()}
    fit = q.likelihood.log_likelihood(statistics) / q.temperature
    apart = q.seen_apart(theta.double())
    square = (apart * q.prior.multiply(apart, q.network.space)).sum()
    # the constants P/2 log 2π of prior and volume cancel, and so does log |diag δ| with that of Λ
    return fit - 0.5 * square - 0.5 * (q.precision.log_det_ratio() - q.prior.log_det_ratio())


@dataclass(frozen=True)
class Newton:
    r"""Newton steps by conjugate gradients, preconditioned with the posterior precision at θ̃.

    For a Gaussian likelihood with one noise scale and the structures "full" and "dual" that precision is the Hessian of
    the objective, and θ_* has a closed form, in observation space where there are fewer data than parameters:

    .. math:: \theta_* = \tilde\theta + \Lambda^{-1} \big(J^\top (y - f)/\sigma^2
              - \Sigma^{-1} (\tilde\theta - \mu)\big)

    Args:
        tolerance: Approximate distance in nats that the objective may be above its minimum.
        max_steps: Largest number of Newton steps.
        forcing: Relative residual to which each step is solved.
        max_products: Largest number of products of conjugate gradients in each step.

    Raises:
        ValueError: a number that is not positive.

    Cost: a pass over the data with one product J v and one Jᵀ u for each iteration of conjugate gradients, and two
    more for each step. The data are held. The closed form passes once over the data, for any prior and noise.
    """

    tolerance: float = 1e-2
    max_steps: int = 50
    forcing: float = 0.1
    max_products: int = 200

    def __post_init__(self) -> None:
        _require_positive(self)

    def search(self, q: Gaussian, data: Data | None, start: Tensor | None) -> Search:
        """A search that begins at ``start``, by default at θ̃."""
        model = LinearModel(q, data)
        if not _is_closed(q):
            return _NewtonSearch(self, model, start)
        return _RowSpace(model, q) if isinstance(q.precision.parts[0], DualPrecision) else _ClosedForm(model, q)


class _SearchOnAll(Search):
    """A search with all data in every step, so that it can follow a line in function space without the network."""

    def __init__(self, settings: Any, model: LinearModel, start: Tensor | None) -> None:
        self._settings, self._model = settings, model
        self._place = model.place(start)

    @property
    def theta(self) -> Float[Tensor, " P"]:  # type: ignore[override]
        return self._place.theta

    @property
    def outputs(self) -> Float[Tensor, "N *C"]:
        """h(θ, x) of all data, in their order."""
        outputs = self._place.outputs
        return torch.cat(outputs) if outputs else self._model.no_outputs

    def statistics(self, q: Gaussian) -> dict[str, Tensor]:
        return self._model.statistics(q, self._place)

    def _slope(self, q: Gaussian, direction: Tensor, change: list[Tensor]) -> Callable[[float], float]:
        """The slope of the objective at a length along a direction d, of which ``change`` is J d."""
        model, along = self._model, direction.double()
        away = q.prior.apart(self._place.theta.double())
        pulled = model.covered(model.prior(q, torch.stack([model.covered(away), along])))
        first, rise = float(pulled[0] @ along), float(pulled[1] @ along)

        def slope(length: float) -> float:
            there = self._place.moved(length, direction, change)
            pairs = zip(model.scores(q, there.outputs), change, strict=True)
            data = sum(float((score.double() * d.double()).sum()) for score, d in pairs)
            if not model.processes.alone:
                data = float(model.processes.summed(torch.tensor(data, dtype=torch.double, device=along.device)))
            return data + first + length * rise

        return slope


def _is_closed(q: Gaussian) -> bool:
    """True if the posterior precision is the Hessian of the objective for any prior and noise."""
    if not isinstance(q.likelihood, GaussianNoise) or torch.as_tensor(q.likelihood.scale).numel() > 1:
        return False
    structure = q.structure.structure
    whole = (
        isinstance(structure, Dual) and structure.points is None and (structure.basis is None or not structure.probes)
    )
    return q.fit.kind == GGN.name and q.prior.curvature is None and (whole or isinstance(structure, Full))


class _ClosedForm(Search):
    """θ_* by one solve, and its squared error as a quadratic function of θ.

    Args:
        model: The linear model.
        q: A posterior whose precision is the Hessian of the objective.
    """

    def __init__(self, model: LinearModel, q: Gaussian) -> None:
        place = model.place()
        fitted = q.fit.likelihood
        scores = [fitted.score(h, y) for h, (_, y) in zip(place.outputs, model.parts, strict=True)]
        self._slope = model.transposed(scores).double()  # Jᵀ (y − f) / σ² with the noise of the fit
        self._covered, self.theta, self._saved = model.covered, place.theta, 0.0

    def improve(self, q: Gaussian, tolerance: float = 0.0) -> float:
        space, start = q.network.space, q.network.mean.double()
        with torch.no_grad():
            scale = _factor(q)
            right = scale * self._slope - self._covered(q.prior.multiply(self._covered(q.prior.apart(start)), space))
            change = q.precision.solve(right)
            apart = self.theta.double() - start - change
            gap = 0.5 * float(apart @ q.precision.multiply(apart))
            curved = (change @ right - change @ self._covered(q.prior.multiply(change, space))) / scale
            self.theta = (start + change).to(self.theta)
            # ‖y − f − J Δ‖² less ‖y − f‖², in variances of the noise of the fit
            self._saved = float(2 * self._slope @ change - curved)
        return gap

    def statistics(self, q: Gaussian) -> dict[str, Tensor]:
        errors = q.fit.statistics["squared_error"]
        return _with_error(q, errors - self._saved * _variance(q))


class _RowSpace(Search):
    r"""The same in the space of the rows X of a dual posterior: no vector of all parameters is needed for the evidence.

    .. math:: \min_\theta\, c \lVert \rho - X(\theta - \mu) \rVert^2 + \lVert \theta - \mu \rVert^2_{\Sigma^{-1}}
              = c\, \rho^\top w, \qquad w = (I + c X \Sigma X^\top)^{-1} \rho, \qquad
              \theta_* = \mu + c\, \Sigma X^\top w

    with the residual ρ at θ = μ in units of the noise of the fit, and c the ratio of its variance to the present one.

    Args:
        model: The linear model.
        q: A posterior whose precision has the rows.
    """

    def __init__(self, model: LinearModel, q: Gaussian) -> None:
        (block,), dual = q.structure.blocks, q.structure.structure
        assert isinstance(block, DualBlock)
        assert isinstance(dual, Dual)
        pairs = zip(model.place().outputs, model.parts, strict=True)
        apart_of = [(y.to(h) - h).flatten(1) for h, (_, y) in pairs] or [model.no_outputs.flatten(1)]
        residual = model.processes.joined(torch.cat(apart_of)).double() / _variance(q) ** 0.5
        own = dual.coordinates(residual.unsqueeze(0))[0]
        apart = model.covered(q.prior.apart(q.network.mean.double()))[block.positions]
        self._block, self._covered, self._start = block, model.covered, q.network.mean
        self._residual = own + block.times(apart.unsqueeze(0))[0]
        self._outside = float((residual.square().sum() - own.square().sum()).clamp(min=0))
        self._at: Gaussian | None = None

    def improve(self, q: Gaussian, tolerance: float = 0.0) -> float:
        if self._at is q:
            return 0.0
        self._at = q
        return float("inf")  # not known, and zero in the next call

    def _solution(self, q: Gaussian) -> Float[Tensor, " K"]:
        """w."""
        (part,) = q.precision.parts
        return torch.cholesky_solve(self._residual.unsqueeze(1), part.factor)[:, 0]  # type: ignore[attr-defined]

    @property
    def theta(self) -> Float[Tensor, " P"]:  # type: ignore[override]
        if (q := self._at) is None:
            return self._start
        with torch.no_grad():
            pulled = torch.zeros_like(self._start, dtype=torch.double)
            pulled[self._block.positions] = _factor(q) * self._block.transposed(self._solution(q).unsqueeze(0))[0]
            moved = self._start - q.prior.apart(self._start) + q.prior.solve(pulled, q.network.space)
            return torch.where(self._covered(torch.ones_like(moved)) > 0, moved, self._start.double()).to(self._start)

    def statistics(self, q: Gaussian) -> dict[str, Tensor]:
        with torch.no_grad():
            left = self._outside + self._solution(q).square().sum()
        return _with_error(q, left.reshape(1) * _variance(q))

    def evidence(self, q: Gaussian) -> Float[Tensor, ""]:
        within = self._residual @ self._solution(q)
        nothing = _with_error(q, torch.zeros_like(q.fit.statistics["squared_error"]))
        misfit = _factor(q) * (self._outside + within)
        ratio = q.precision.log_det_ratio() - q.prior.log_det_ratio()
        return q.likelihood.log_likelihood(nothing) / q.temperature - 0.5 * (misfit + ratio)


def _factor(q: Gaussian) -> float | Tensor:
    """The factor of the curvature at the noise and the temperature of a posterior."""
    return torch.as_tensor(q.likelihood.curvature_scale(q.fit.likelihood)).double() / q.temperature


def _variance(q: Gaussian) -> Tensor:
    """The noise variance of the fit."""
    return torch.as_tensor(q.fit.likelihood.scale, dtype=torch.double).square()  # type: ignore[attr-defined]


def _with_error(q: Gaussian, errors: Tensor) -> dict[str, Tensor]:
    """The statistics of the fit with another squared error."""
    return {**q.fit.statistics, "squared_error": errors.clamp(min=0)}


class _NewtonSearch(_SearchOnAll):
    def improve(self, q: Gaussian, tolerance: float = 0.0) -> float:
        model, place = self._model, self._place
        gradient, precondition = model.gradient(q, place), q.precision.precondition
        gap = _gap(gradient, precondition)
        if gap <= tolerance:
            return gap
        solution = conjugate_gradients(
            model.curvature(q, place),
            -gradient.unsqueeze(0),
            precondition=precondition,
            tolerance=self._settings.forcing,
            max_iterations=self._settings.max_products,
        )
        direction = solution.x[0]
        change = model.directional(direction)
        self._place = place.moved(self._length(q, direction, change), direction, change)
        return gap

    def _length(self, q: Gaussian, direction: Tensor, change: list[Tensor]) -> float:
        """The step length at which the slope, which grows, is at most half of its first size above zero."""
        slope = self._slope(q, direction, change)
        first, length = slope(0.0), 1.0
        if first >= 0:  # at the mode, up to rounding
            return 0.0
        for _ in range(SHORTENINGS):
            here = slope(length)
            if here <= -0.5 * first:
                break
            length *= min(0.7, max(0.1, first / (first - here)))
        return length


@dataclass(frozen=True)
class QuasiNewton:
    r"""L-BFGS with exact line searches, preconditioned with the posterior precision at θ̃.

    For a few steps that need not reach the mode, as in a refinement: they cost less than those of :class:`Newton`, each
    of which solves a linear system.

    Args:
        tolerance: Approximate distance in nats that the objective may be above its minimum.
        max_steps: Largest number of steps.
        memory: Number of earlier steps that a direction uses.

    Raises:
        ValueError: a number that is not positive.

    Cost: a pass over the data with one product J v and one Jᵀ u for each step. The data are held.
    """

    tolerance: float = 1e-2
    max_steps: int = 200
    memory: int = 10

    def __post_init__(self) -> None:
        _require_positive(self)

    def search(self, q: Gaussian, data: Data | None, start: Tensor | None) -> "_QuasiNewtonSearch":
        """A search that begins at ``start``, by default at θ̃."""
        return _QuasiNewtonSearch(self, LinearModel(q, data), start)


class _QuasiNewtonSearch(_SearchOnAll):
    def __init__(self, settings: QuasiNewton, model: LinearModel, start: Tensor | None) -> None:
        super().__init__(settings, model, start)
        self._last: tuple[Gaussian, Tensor, Tensor] | None = None
        self._pairs: list[tuple[Tensor, Tensor]] = []

    def tensors(self) -> dict[str, Tensor]:
        """The whole state: the point, the last gradient, and the steps that a direction uses."""
        found = {"theta": self._place.theta, "gains": torch.tensor(self.gains, dtype=torch.double)}
        found |= {f"outputs.{number}": part for number, part in enumerate(self._place.outputs)}
        if self._last is not None:
            found |= {"last.theta": self._last[1], "last.gradient": self._last[2]}
        for number, (step, change) in enumerate(self._pairs):
            found |= {f"step.{number}": step, f"change.{number}": change}
        return found

    def restore(self, tensors: Mapping[str, Tensor], q: Gaussian) -> None:
        """Go on from a state of an earlier search with the same data.

        Args:
            tensors: Result of :meth:`tensors`.
            q: The posterior of its last step.

        Raises:
            KeyError: a tensor is missing.
        """
        mine = self._place
        outputs = tuple(tensors[f"outputs.{number}"].to(part) for number, part in enumerate(mine.outputs))
        self._place, self.gains = Place(tensors["theta"].to(mine.theta), outputs), tensors["gains"].tolist()
        if "last.theta" in tensors:
            self._last = q, tensors["last.theta"].to(mine.theta), tensors["last.gradient"].to(mine.theta)
        steps = sum(name.startswith("step.") for name in tensors)
        self._pairs = [
            (tensors[f"step.{number}"].to(mine.theta), tensors[f"change.{number}"].to(mine.theta))
            for number in range(steps)
        ]

    def improve(self, q: Gaussian, tolerance: float = 0.0) -> float:
        gradient, precondition = self._model.gradient(q, self._place), q.precision.precondition
        if self._last is not None and self._last[0] is q:
            step, change = self.theta - self._last[1], gradient - self._last[2]
            if step @ change > 0:
                self._pairs = [*self._pairs, (step, change)][-self._settings.memory :]
        else:
            self._pairs, self.gains = [], []  # they belong to another objective
        self._last = q, self.theta, gradient
        gap = _gap(gradient, precondition)
        if gap <= tolerance:
            return gap
        gain = self._step(q, gradient)
        if gain == 0 and self._pairs:  # rounding in the pairs has turned the direction uphill, or broken it
            self._pairs = []
            gain = self._step(q, gradient)
        self.gains = [*self.gains, gain]
        return gap

    def _step(self, q: Gaussian, gradient: Tensor) -> float:
        """Move along the direction of the pairs, and return what that gains: zero, without a move, if it is uphill."""
        direction = -self._approximate_inverse(gradient, q.precision.precondition)
        change = self._model.directional(direction)
        length, gain = self._length(q, direction, change)
        if gain > 0:
            self._place = self._place.moved(length, direction, change)
        return gain

    def _approximate_inverse(self, v: Tensor, precondition: Callable[[Tensor], Tensor]) -> Tensor:
        """H⁻¹ v, by the two loops of L-BFGS."""
        weights = []
        for s, y in reversed(self._pairs):
            weights.append((s @ v) / (s @ y))
            v = v - weights[-1] * y
        v = precondition(v.unsqueeze(0))[0]
        for (s, y), weight in zip(self._pairs, reversed(weights), strict=True):
            v = v + (weight - (y @ v) / (s @ y)) * s
        return v

    def _length(self, q: Gaussian, direction: Tensor, change: list[Tensor]) -> tuple[float, float]:
        """The step length at which the slope, which grows, is a tenth of its first size at most, and what it gains."""
        slope = self._slope(q, direction, change)
        first, length = slope(0.0), 1.0
        if not first < 0:  # at the mode, up to rounding, or not a number
            return 0.0, 0.0
        low, high, last = (0.0, first), None, 0.0
        for _ in range(SHORTENINGS):
            here = slope(length)
            if abs(here) <= -0.1 * first:
                break
            again = here * last > 0  # an end that stays counts half: the Illinois rule
            if here < 0:
                low, high = (length, here), (high[0], high[1] / 2) if high and again else high
            else:
                low, high = (low[0], low[1] / 2) if again else low, (length, here)
            last = here
            if high is None:
                length *= 2
            else:  # the secant, kept away from the ends
                share = min(0.9, max(0.1, low[1] / (low[1] - high[1])))
                length = low[0] + share * (high[0] - low[0])
        return length, -0.5 * first * length


@dataclass(frozen=True)
class Stochastic:
    r"""Minibatch gradients with Nesterov momentum, for too many data to be held or to be passed over often.

    Gradients are preconditioned with the posterior precision at θ̃, so that one learning rate suits all scales; it falls
    to zero along a cosine.

    Args:
        epochs: Passes over the data in each call.
        batch_size: Data in a step, where the data are a pair (X, Y), which is shuffled.
        lr: Learning rate at its highest; 1 is a full Newton step of the whole objective.
        momentum: Share of the velocity that is kept.
        tolerance: Approximate distance in nats that the objective may be above its minimum.
        seed: Seed of the order of the data.

    Raises:
        ValueError: a number that is not positive.

    Cost: one product J v and one Jᵀ u with a minibatch in each step, and with all data once more at the end.
    """

    epochs: int = 10
    batch_size: int = 256
    lr: float = 0.1
    momentum: float = 0.9
    tolerance: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        _require_positive(self, apart_from=("seed",))
        if self.momentum >= 1:
            raise ValueError(f"the momentum must be below 1, got {self.momentum}.")

    @property
    def max_steps(self) -> int:
        """1, since a call runs all epochs."""
        return 1

    def search(self, q: Gaussian, data: Data | None, start: Tensor | None) -> Search:
        """A search that begins at ``start``, by default at θ̃."""
        return _StochasticSearch(self, q, data, start)


class _StochasticSearch(Search):
    def __init__(self, settings: Stochastic, q: Gaussian, data: Data | None, start: Tensor | None) -> None:
        q.processes.require_alone("stochastic steps are taken", "use the solver 'newton'")
        self._settings, self._data = settings, q.data if data is None else data
        self._network, self._mask = q.network.in_state_precision(), q.structure.covered.to(q.network.device)
        mean = self._network.mean
        self.theta = mean if start is None else torch.where(self._mask, start.to(mean), mean)
        self._generator = torch.Generator().manual_seed(settings.seed)

    def improve(self, q: Gaussian, tolerance: float = 0.0) -> float:
        settings, precondition = self._settings, q.precision.precondition
        velocity, size = torch.zeros_like(self.theta), q.num_data * settings.epochs
        seen = 0
        if self._data is None:
            batches: int | None = sum(1 for _ in data_of(q, None))
        else:
            batches = number_of_batches(self._data, self._settings.batch_size)  # None if unknown before a pass
        for _ in range(settings.epochs):
            for x, y in self._shuffled(q):
                ahead = self.theta + settings.momentum * velocity
                _, slope = self._slope(q, ahead, x, y)
                gradient = (batches or q.num_data / len(y)) * slope + self._from_prior(q, ahead)
                lr = 0.5 * settings.lr * (1 + math.cos(math.pi * min(1.0, seen / size)))
                velocity = settings.momentum * velocity - lr * precondition(gradient.unsqueeze(0))[0]
                self.theta = self.theta + velocity
                seen += len(y)
        gradient, total = self._from_prior(q, self.theta), 0
        for x, y in data_of(q, self._data):
            gradient = gradient + self._slope(q, self.theta, x, y)[1]
            total += len(y)
        require_all(total, q)
        return _gap(gradient, precondition)

    def _from_prior(self, q: Gaussian, theta: Tensor) -> Float[Tensor, " P"]:
        """The gradient of the prior's part of the objective."""
        return self._mask * q.prior.multiply(self._mask * q.prior.apart(theta), q.network.space)

    def _slope(self, q: Gaussian, theta: Tensor, x: Inputs, y: Tensor) -> tuple[Tensor, Float[Tensor, " P"]]:
        """h(θ, x), and the gradient of −Σ log p(y|h) / T."""
        at, h = self._tangent(theta, x)
        score = q.likelihood.score(h, y.to(h.device)) / q.temperature
        return h, self._mask * -at.vjp(score.unsqueeze(0))[0]

    def _tangent(self, theta: Tensor, x: Inputs) -> tuple[Linearisation, Tensor]:
        """The linearisation, and h(θ, x)."""
        network = self._network
        at = Linearisation(network, floating(moved(x, network.device), network.dtype))
        return at, at.f + at.jvp((theta - network.mean).unsqueeze(0))[0]

    def _shuffled(self, q: Gaussian) -> Iterator[tuple[Inputs, Tensor]]:
        data = self._data
        if data is None or not is_pair(data):
            yield from data_of(q, data)
            return
        x, y = data
        for rows in torch.randperm(len(y), generator=self._generator).split(self._settings.batch_size):
            yield take(x, rows), y[rows]

    def statistics(self, q: Gaussian) -> dict[str, Tensor]:
        return summed_statistics(q, ((self._tangent(self.theta, x)[1], y) for x, y in data_of(q, self._data)))


def _gap(gradient: Float[Tensor, " P"], precondition: Callable[[Tensor], Tensor]) -> float:
    return 0.5 * float(gradient.double() @ precondition(gradient.unsqueeze(0))[0].double())


def _require_positive(settings: Any, apart_from: tuple[str, ...] = ()) -> None:
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name not in apart_from and not value > 0:
            raise ValueError(f"{type(settings).__name__} needs a positive {field.name}, got {value}.")


Solver: TypeAlias = Newton | QuasiNewton | Stochastic
#: Solvers by name.
SOLVERS = {"newton": Newton, "quasi_newton": QuasiNewton, "stochastic": Stochastic}


def linear_mode(
    q: Any, data: Data | None = None, solver: str | Solver = "newton", start: Tensor | None = None
) -> Float[Tensor, " P"]:
    r"""The parameters at which the linear model of a linearised Laplace approximation has its mode.

    .. math:: \theta_* = \operatorname{argmin}_\theta\; -\tfrac1T \sum_n \log p(y_n \mid f(\tilde\theta, x_n)
              + J(x_n)(\theta - \tilde\theta)) + \tfrac12 \lVert \theta \rVert_\Lambda^2

    Around the network's own parameters θ̃, for the prior and the noise that the posterior has. The problem is convex for
    likelihoods that are log-concave in f. [antoran2022]

    Args:
        q: A Gaussian posterior of any structure, which serves as preconditioner.
        data: The data that it was fitted to; only a posterior from a file, or one fitted to an iterator, needs it.
        solver: "newton", "quasi_newton" or "stochastic", or an object ``osc.evidence.Newton``,
            ``osc.evidence.QuasiNewton`` or ``osc.evidence.Stochastic``.
        start: The first θ, (P,): by default θ̃. The mode for a similar prior saves passes.

    Returns:
        θ_* (P,), flat, in the order of ``named_parameters()``. Parameters outside of a subnetwork keep their values.

    Raises:
        ValueError: no data, or other data than those of the fit; an unknown solver.

    Cost: see :class:`Newton` and :class:`Stochastic`.

    >>> X, Y = torch.randn(30, 2), torch.randn(30, 1)
    >>> q = osc.laplace(nn.Linear(2, 1), osc.likelihoods.Gaussian(), (X, Y), structure="full", prior=1.0)
    >>> theta = osc.evidence.linear_mode(q, (X, Y))
    >>> again = osc.evidence.linear_mode(q, (X, Y), start=theta)
    >>> bool((again - theta).norm() < 1e-3)
    True
    """
    return found(as_gaussian(q, "linear_mode"), data, solver, start).theta


def found(q: Gaussian, data: Data | None, solver: str | Solver, start: Tensor | None = None) -> Search:
    """A search that has reached the mode for the prior and the noise of ``q``, up to the tolerance of the solver."""
    chosen = as_solver(solver)
    q = q.replace(prior=q.prior.with_precision(q.prior.precision.detach()))
    with torch.no_grad():
        search, gap = chosen.search(q, data, start), float("inf")
        for _ in range(chosen.max_steps):
            gap = search.improve(q, chosen.tolerance)
            if gap <= chosen.tolerance:
                return search
            if search.stands(chosen.tolerance, chosen.max_steps):
                break
        if not isinstance(chosen, Stochastic):
            gap = search.improve(q, math.inf)  # after the last step, without another one
    if not gap <= chosen.tolerance:
        more = f"Allow {type(chosen).__name__} more work, compute in float64"
        if search.stands(chosen.tolerance, chosen.max_steps):
            more = "Further steps would gain next to nothing: compute in float64"
        warnings.warn(
            f"the mode of the linear model was not reached: the objective is still about {gap:.1e} nats above its "
            f"minimum, and {chosen.tolerance:.1e} was asked for. {more}, or allow a larger tolerance.",
            stacklevel=3,
        )
    return search


def as_solver(solver: Any) -> Solver:
    """The solver of a name, or the given one."""
    return made("solver", solver, SOLVERS, Solver)
