"""Curvature from the state of an optimiser: second moment, weight decay, and batch gradients at fixed weights."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from osculate.batches import Data, Fixed, as_batches, is_pair, shuffled
from osculate.distributed import ALONE, Group
from osculate.evidence import maximise_evidence
from osculate.inputs import Inputs, count
from osculate.likelihoods import Likelihood
from osculate.methods.map import as_prior
from osculate.parameters import Network, point_estimated
from osculate.posteriors import Gaussian
from osculate.predictive import tune
from osculate.priors import Diagonal, Isotropic, Layerwise, Prior
from osculate.registry import choose

#: Names under which optimisers store the average squared gradient.
KEYS = frozenset({"exp_avg_sq", "square_avg"})
#: Number of averaged steps below which there is a warning of noise, whose relative variance is 2 over the number.
SHORT = 100
#: Number of terms of an average that are summed, in units of its window.
WINDOW = 40
#: Ways to make batches.
SAMPLINGS = ("shuffled", "replacement")


@dataclass(frozen=True, eq=False)
class Entry:
    """Averages of the gradients of one parameter tensor, from the state of an optimiser.

    Attributes:
        raw: v, without bias correction.
        mean: Average gradient, without bias correction; only for RMSprop with ``centered=True``.
        decay: Weight decay.
        eps: ε, added to √v̂.
        decoupled: True if weight decay acts on the weights, and not through the gradient.
        memory: β₂; v has the window 1/(1 − β₂).
        steps: Number of steps made.
    """

    raw: Tensor
    mean: Tensor | None
    decay: float
    eps: float
    decoupled: bool
    memory: float
    steps: int

    @property
    def bias(self) -> float:
        """1 − β₂ᵗ, the sum of the weights of an average initialised at zero."""
        return 1 - self.memory**self.steps

    @property
    def value(self) -> Tensor:
        """v̂, with bias correction."""
        return self.raw / self.bias

    @classmethod
    def of(cls, state: dict[str, Any], group: dict[str, Any], decoupled: bool) -> "Entry":
        """Read the state of a parameter and the settings of its group."""
        values = state["exp_avg_sq"] if "exp_avg_sq" in state else state["square_avg"]
        values = values.to(torch.promote_types(values.dtype, torch.float32))
        decoupled = decoupled or bool(group.get("decoupled_weight_decay", False))
        decay, eps, steps = float(group["weight_decay"]), float(group["eps"]), int(float(state["step"]))
        return cls(values, state.get("grad_avg"), decay, eps, decoupled, memory_of(group), steps)


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """Averages of the gradients of a loss, from the state of its optimiser, in the order of ``named_parameters()``.

    Attributes:
        entries: Averages of each updated parameter, by name; all other parameters are constants.
    """

    entries: Mapping[str, Entry]

    @classmethod
    def of(cls, model: nn.Module, optimizer: Optimizer) -> "SecondMoments":
        """Read the state of an optimiser.

        Raises:
            ValueError: the optimiser keeps no second moment, has made no step, updates other parameters, or mixes
                coupled and decoupled weight decay.
        """
        require_second_moment(optimizer)
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        fixed = point_estimated(model)
        known = {name: p for name, p in model.named_parameters() if id(p) in groups and name not in fixed}
        decoupled = isinstance(optimizer, AdamW)
        entries = {
            name: Entry.of(optimizer.state[p], groups[id(p)], decoupled)
            for name, p in known.items()
            if optimizer.state.get(p)
        }
        if not entries:
            why = "made no step yet" if known else "other parameters than the model"
            raise ValueError(f"the optimiser has {why}: pass the optimiser that trained this model, after training.")
        if len({entry.decoupled for entry in entries.values()}) > 1:
            raise ValueError(
                "some groups of the optimiser have decoupled weight decay and others coupled: use one kind for all."
            )
        return cls(entries)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the updated parameters."""
        return tuple(self.entries)

    @property
    def youngest(self) -> Entry:
        """Averages of the parameter with the fewest steps."""
        return min(self.entries.values(), key=lambda entry: entry.steps)

    @property
    def steps(self) -> int:
        """Number of steps of the parameter with the most steps."""
        return max(entry.steps for entry in self.entries.values())

    @property
    def raw(self) -> Float[Tensor, " P"]:
        """v, without bias correction."""
        return self._flat(lambda entry: entry.raw)

    @property
    def values(self) -> Float[Tensor, " P"]:
        """v̂, with bias correction."""
        return self._flat(lambda entry: entry.value)

    @property
    def pull(self) -> Float[Tensor, " P"]:
        """√v̂ + ε, the factor between decoupled weight decay and weight decay in the gradient."""
        return self._flat(lambda entry: entry.value.sqrt() + entry.eps)

    @property
    def decay(self) -> Float[Tensor, " P"]:
        """The weight decay of each parameter."""
        return self._flat(lambda entry: torch.full_like(entry.raw, entry.decay))

    def _flat(self, of: Callable[[Entry], Tensor]) -> Float[Tensor, " P"]:
        return torch.cat([of(entry).detach().reshape(-1) for entry in self.entries.values()])

    def fisher(
        self, theta: Float[Tensor, " P"], num_data: int, noise: float, prior: Float[Tensor, " P"] | None = None
    ) -> Float[Tensor, " P"]:
        """Σ_i l_i², the squared gradients of single data, at a mode of loss plus weight decay, in units of the loss.

        Args:
            theta: The mode.
            num_data: N.
            noise: The variance of a batch mean relative to that of one datum (:meth:`Sampling.average`).
            prior: δ/N of a prior in the loss, which acts as coupled weight decay.
        """
        values = self.values
        if prior is None and self.youngest.decoupled:
            mean = -self.decay * self.pull * theta  # mean gradient of the loss alone
            spread = values - mean.square()
        else:
            decay = self.decay if prior is None else prior
            mean, spread = -decay * theta, values
            if all(entry.mean is not None for entry in self.entries.values()):
                average = self._flat(lambda entry: torch.as_tensor(entry.mean) / entry.bias)
                mean, spread = average - decay * theta, values - average.square()
        return num_data * (spread.clamp(min=0) / noise + mean.square())


def memory_of(group: dict[str, Any]) -> float:
    """β₂ of a parameter group, whatever the optimiser calls it."""
    return float(group["betas"][1] if "betas" in group else group["alpha" if "alpha" in group else "rho"])


def require_second_moment(optimizer: Optimizer) -> None:
    """Raise ValueError if the optimiser keeps no average of squared gradients; the message lists those that do."""
    name = type(optimizer).__name__
    states = [state for state in optimizer.state.values() if state]
    groups = optimizer.param_groups
    remembers = all("betas" in g or "alpha" in g or "rho" in g for g in groups) and name not in ("Adamax", "ASGD")
    if not remembers or any(not state.keys() & KEYS for state in states):
        raise ValueError(
            f"{name} keeps no average of squared gradients at the mode: use Adam, AdamW, NAdam, RAdam, RMSprop or "
            "Adadelta, or compute the squared gradients of single data in a separate pass, osc.laplace(..., "
            "structure='diag', curvature='empirical_fisher')."
        )


@dataclass(frozen=True)
class Sampling:
    """The batches that the optimiser has seen.

    Args:
        num_data: N, the number of training data.
        batch_size: M, the number of data in one step, including all accumulated parts.
        kind: "shuffled" (epochs without replacement) or "replacement".
        drop_last: True if an incomplete last batch is dropped.

    Raises:
        ValueError: a size is out of range, or a name is unknown.
    """

    num_data: int
    batch_size: int
    kind: str = "shuffled"
    drop_last: bool = False

    def __post_init__(self) -> None:
        choose("sampling", self.kind, SAMPLINGS)
        if self.num_data < 2 or not 1 <= self.batch_size <= self.num_data:
            raise ValueError(
                f"batch_size={self.batch_size} of num_data={self.num_data} is out of range: give at least two data, "
                "and batches of at least one and at most all of them."
            )

    def require_noise(self) -> None:
        """Raise ValueError if each batch is the whole data set."""
        if self.batch_size == self.num_data and self.kind == "shuffled":
            raise ValueError(
                f"each batch was all of the {self.num_data} data: at the mode its gradient is zero, so that the second "
                "moment contains no curvature. Use smaller batches, or osc.laplace(..., structure='diag', "
                "curvature='empirical_fisher') for the squared gradients of single data."
            )

    def noise(self, size: int) -> float:
        """The variance of the mean of ``size`` data, relative to that of one datum."""
        n = self.num_data
        return (n - size) / (size * (n - 1)) if self.kind == "shuffled" else 1 / size

    def average(self, entry: Entry) -> tuple[float, float]:
        """The noise of a batch under the optimiser's average, and the effective number of averaged steps.

        An incomplete last batch of an epoch has more noise than the others.
        """
        remainder = 0 if self.kind == "replacement" or self.drop_last else self.num_data % self.batch_size
        epoch = self.num_data // self.batch_size + bool(remainder)
        memory, steps = entry.memory, entry.steps
        length = min(steps, round(WINDOW / (1 - memory)) if memory < 1 else steps)
        age = torch.arange(length, dtype=torch.double)
        noise = torch.full_like(age, self.noise(self.batch_size))
        if remainder:
            noise[(steps - age) % epoch == 0] = self.noise(remainder)
        parts = memory**age * noise
        return float(parts.sum() / (memory**age).sum()), float(parts.sum() ** 2 / parts.square().sum())


def warn_of_noise(steps: float) -> None:
    """Warn if the average has few effective steps."""
    if steps < SHORT:
        warnings.warn(
            f"the second moment is an average over about {steps:.0f} steps, so that single precisions have a relative "
            f"error of {100 * (2 / steps) ** 0.5:.0f} %: train on with a higher memory (betas, alpha, rho), or call "
            "refresh(steps).",
            stacklevel=4,
        )


#: Number of batches in the check of a second moment, and the ratio above which there is a warning.
COMPARED, FACTOR = 16, 3.0


@dataclass(frozen=True)
class BatchGradients:
    """Gradients of the mean log likelihood of batches.

    Args:
        network: Network at the weights, in evaluation mode.
        likelihood: p(y|f).
        data: Training data, or a part of them.
        sampling: Batches of the training, which give the size.
        labels: "data", or "drawn" for labels sampled from the network.
        generator: Generator for the order of the data, and the labels.
        processes: Processes each of which has its share of the data.
    """

    network: Network
    likelihood: Likelihood
    data: Data
    sampling: Sampling
    labels: str = "data"
    generator: torch.Generator | None = None
    processes: Group = ALONE

    def __iter__(self) -> Iterator[tuple[int, Float[Tensor, " P"]]]:
        """Iterate over (number of the pass, gradient) without end; stop if a pass repeats the previous one.

        Raises:
            ValueError: no batch has the size of those in training.
        """
        size, number, first = self.sampling.batch_size, 0, None
        while True:
            whole = 0
            for x, y in as_batches(shuffled(self.data, size, self.generator)):
                if len(y) == size:
                    g, whole = self._of(x, y), whole + 1
                    if whole == 1 and first is not None and torch.equal(g, first):
                        return
                    first = g if whole == 1 else first
                    yield number, g
            if not whole:
                raise ValueError(
                    f"no batch of the data holds {size} data, as those in training did: pass them as tensors (X, Y), "
                    f"or a loader with batch_size={size}."
                )
            number += 1

    def _of(self, x: Inputs, y: Tensor) -> Float[Tensor, " P"]:
        theta = {name: value.requires_grad_() for name, value in self.network.parameters.items()}
        with torch.enable_grad():
            f = self.network(x, theta)
        y, drawn = y.to(f.device), self.labels == "drawn"
        if drawn:
            column = self.likelihood.sampled_root(f.detach(), y, 1, self.generator)[0]
        else:
            column = self.likelihood.score(f.detach(), y)
        parts = torch.autograd.grad(f, list(theta.values()), column / len(f), materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])

    def fisher(self, steps: int) -> Float[Tensor, " P"]:
        r"""An unbiased estimate of Σ_i l_i² over the N data from the gradients of ``steps`` batches.

        .. math:: \frac1S \sum_s g_s^2 - \bar g^2 \approx C (w - V), \qquad
                  F = N \big(C (1 - V) + \bar g^2\big)

        C is the variance of the gradients of single data, w C that of a batch mean, and V C that of ḡ, the mean over
        passes of which all but the last are complete.

        Several processes sum over the data of each.

        Raises:
            ValueError: there are fewer than two different batches.
        """
        if not (processes := self.processes).alone:
            with processes.together():
                size = max(1, self.sampling.batch_size // processes.size)
                each = Fixed(self.data, size).num_data
                values = replace(self, sampling=Sampling(each, size))._of_own(steps)
            total = sum(processes.gather(each))
            return processes.summed(values) * (self.sampling.num_data / total)
        return self._of_own(steps)

    def _of_own(self, steps: int) -> Float[Tensor, " P"]:
        """:meth:`fisher` from the data of this process."""
        number, size, passes = self.sampling.num_data, self.sampling.batch_size, [0]
        total = squares = torch.zeros(())
        for _, (index, g) in zip(range(steps), self, strict=False):
            passes += [0] * (index + 1 - len(passes))
            passes[index] += 1
            total, squares = total + g.double(), squares + g.double().square()
        taken = sum(passes)
        if self.labels == "drawn":  # their mean is zero for every batch
            return number * size * squares / taken
        if taken < 2:
            raise ValueError(f"a variance needs at least two different batches of {size}, but the data have {taken}.")
        sampling = Sampling(count(self.data[0]) if is_pair(self.data) else number, size)
        sampling.require_noise()
        mean = total / taken
        noise_of_mean = sum((batches / taken) ** 2 * sampling.noise(batches * size) for batches in passes)
        single = ((squares / taken - mean.square()) / (sampling.noise(size) - noise_of_mean)).clamp(min=0)
        return number * (single * (1 - noise_of_mean) + mean.square())

    def compare(self, fisher: Float[Tensor, " P"]) -> None:
        """Warn if Σ_i l_i² from the state of an optimiser disagrees with the gradients at the present weights."""
        try:
            present = self.fisher(COMPARED)
        except (ValueError, ConnectionError):  # too few data were passed
            return
        ratio = float(fisher.double().sum() / present.sum().clamp(min=torch.finfo(torch.double).tiny))
        if not 1 / FACTOR <= ratio <= FACTOR:
            warnings.warn(
                f"the curvature in the state of the optimiser is {ratio:.2g} times that of a few batches at the "
                "present weights: either training had not converged, or batch_size, num_data or loss_scale differ from "
                "those of the training. Decay the learning rate to zero over many steps, or call refresh(200).",
                stacklevel=4,
            )


#: Priors by name.
PRIORS = ("evidence", "validation", "l2", "adamw")


def chosen_prior(
    prior: str | float | Prior, moments: SecondMoments, scale: float, validation: Data | None
) -> tuple[Prior, Callable[[Gaussian], Gaussian]]:
    """The prior, and the function that tunes the posterior with it; ``scale`` is c N."""
    if not isinstance(prior, str):
        return as_prior(prior), unchanged
    choose("prior precision", prior, PRIORS)
    if prior == "evidence":
        return Layerwise(1.0), maximise_evidence
    if prior == "validation":
        if validation is None:
            raise ValueError("prior_precision='validation' needs held-out data: pass validation=(X, Y).")
        return Isotropic(1.0), lambda q: tune(q, validation)
    free = [name for name, entry in moments.entries.items() if not entry.decay > 0]
    if free or (prior == "adamw") != moments.youngest.decoupled:
        kind = "decoupled weight decay, such as AdamW," if prior == "adamw" else "weight decay in the gradient"
        why = f"{free[0]!r} has none" if free else "this one has the other kind"
        raise ValueError(
            f"prior_precision={prior!r} needs an optimiser with {kind} on all parameters, but {why}: give a number, "
            "'evidence' or 'validation'."
        )
    return Diagonal(scale * moments.decay * (moments.pull if prior == "adamw" else 1.0)), unchanged


def unchanged(q: Gaussian) -> Gaussian:
    """Return the posterior itself."""
    return q


def printed_prior(prior: str | float | Prior, moments: SecondMoments) -> Prior:
    """1/λ + ε, a variance used as a precision; λ defaults to the weight decay. [perone2021, eq. 6]"""
    first = next(iter(moments.entries.values()))
    if isinstance(prior, str) and prior in ("l2", "adamw"):
        decay = first.decay
    elif isinstance(prior, Isotropic) or not isinstance(prior, str | Prior):
        decay = float(as_prior(prior).precision)
    else:
        decay = 0.0
    if not decay > 0:
        raise ValueError(
            f"scaling='paper' needs the weight decay λ as a number, got prior_precision={prior!r}: give a number, or "
            "'adamw' or 'l2' for the weight decay of the optimiser."
        )
    return Isotropic(1 / decay + first.eps)
