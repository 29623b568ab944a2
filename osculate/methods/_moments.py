"""Curvature from an optimiser: its second moment, gradients of batches at fixed weights, its weight decay."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from osculate.batches import Data, as_batches, is_pair, shuffled
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
#: Least number of steps in an average without a warning of its noise, whose relative variance is 2 over the number.
SHORT = 100
#: Length of an average that is summed, in units of its memory.
WINDOW = 40
#: Ways to make batches.
SAMPLINGS = ("shuffled", "replacement")


@dataclass(frozen=True)
class Rule:
    """The rule by which an optimiser averages its second moment.

    Attributes:
        memory: β₂; v has the window 1/(1 − β₂).
        steps: Number of steps made.
        decoupled: True if weight decay acts on the weights, and not through the gradient.
    """

    memory: float
    steps: int
    decoupled: bool

    @property
    def bias(self) -> float:
        """1 − β₂ᵗ, the sum of the weights of an average that starts at zero."""
        return 1 - self.memory**self.steps


@dataclass(frozen=True, eq=False)
class Entry:
    """Averages of the gradients of one parameter tensor, from the state of an optimiser.

    Attributes:
        raw: v, with the bias of its start at zero.
        mean: Average gradient, with its bias; of RMSprop with ``centered=True`` only.
        decay: Weight decay.
        eps: ε, added to √v̂.
        rule: Rule of the average.
    """

    raw: Tensor
    mean: Tensor | None
    decay: float
    eps: float
    rule: Rule

    @classmethod
    def of(cls, state: dict[str, Any], group: dict[str, Any], decoupled: bool) -> "Entry":
        """Read the state of a parameter and the settings of its group."""
        values = state["exp_avg_sq"] if "exp_avg_sq" in state else state["square_avg"]
        if values.dtype in (torch.float16, torch.bfloat16):
            values = values.float()
        decoupled = decoupled or bool(group.get("decoupled_weight_decay", False))
        rule = Rule(memory_of(group), int(float(state["step"])), decoupled)
        return cls(values, state.get("grad_avg"), float(group["weight_decay"]), float(group["eps"]), rule)


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """Averages of the gradients of a loss, from the state of its optimiser, in the order of ``named_parameters()``.

    Attributes:
        entries: Averages of each parameter that has been stepped, by name; other parameters are constants.
    """

    entries: Mapping[str, Entry]

    @classmethod
    def of(cls, model: nn.Module, optimizer: Optimizer) -> "SecondMoments":
        """Read the state of an optimiser.

        Raises:
            ValueError: an optimiser without such a state, one that has made no step, one of other parameters, or one
                with weight decay of both kinds.
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
            raise ValueError(f"the optimiser has {why}: pass the one that has trained this model, after training.")
        if len({entry.rule.decoupled for entry in entries.values()}) > 1:
            raise ValueError(
                "the groups of the optimiser have weight decay of both kinds, decoupled and in the gradient: use one."
            )
        return cls(entries)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters that have been stepped."""
        return tuple(self.entries)

    @property
    def free(self) -> tuple[str, ...]:
        """Names of those without weight decay."""
        return tuple(name for name, entry in self.entries.items() if not entry.decay > 0)

    @property
    def rule(self) -> Rule:
        """Rule of the parameter that was stepped least."""
        return min((entry.rule for entry in self.entries.values()), key=lambda rule: rule.steps)

    @property
    def steps(self) -> int:
        """Steps of the parameter that was stepped most."""
        return max(entry.rule.steps for entry in self.entries.values())

    @property
    def centred(self) -> bool:
        """True if the average gradient is known as well."""
        return all(entry.mean is not None for entry in self.entries.values())

    @property
    def raw(self) -> Float[Tensor, " P"]:
        """v, with the bias of its start at zero."""
        return self._flat(lambda entry: entry.raw)

    @property
    def values(self) -> Float[Tensor, " P"]:
        """v̂, without the bias of its start at zero."""
        return self._flat(lambda entry: entry.raw / entry.rule.bias)

    @property
    def pull(self) -> Float[Tensor, " P"]:
        """√v̂ + ε, by which a decoupled weight decay is stronger or weaker than one in the gradient."""
        return self._flat(lambda entry: (entry.raw / entry.rule.bias).sqrt() + entry.eps)

    @property
    def decay(self) -> Float[Tensor, " P"]:
        """The weight decay of each parameter."""
        return self._flat(lambda entry: torch.full_like(entry.raw, entry.decay))

    def _flat(self, of: Callable[[Entry], Tensor]) -> Float[Tensor, " P"]:
        return torch.cat([of(entry).detach().reshape(-1) for entry in self.entries.values()])

    def fisher(
        self, theta: Float[Tensor, " P"], num_data: int, noise: float, prior: Float[Tensor, " P"] | None = None
    ) -> Float[Tensor, " P"]:
        """Σ_i l_i² of single data, at a mode of loss and weight decay together, in units of the loss.

        Args:
            theta: the mode.
            num_data: N.
            noise: the variance of a batch's mean in that of one datum (:meth:`Sampling.average`).
            prior: δ/N of a prior in the loss, which acts as a weight decay in the gradient does.
        """
        values = self.values
        if prior is None and self.rule.decoupled:
            mean = -self.decay * self.pull * theta  # of the loss alone
            spread = values - mean.square()
        else:
            decay = self.decay if prior is None else prior
            mean, spread = -decay * theta, values
            if self.centred:
                average = self._flat(lambda entry: torch.as_tensor(entry.mean) / entry.rule.bias)
                mean, spread = average - decay * theta, values - average.square()
        return num_data * (spread.clamp(min=0) / noise + mean.square())


def memory_of(group: dict[str, Any]) -> float:
    """β₂ of a group of parameters, by whatever name."""
    return float(group["betas"][1] if "betas" in group else group["alpha" if "alpha" in group else "rho"])


def require_second_moment(optimizer: Optimizer) -> None:
    """Refuse optimisers that keep no average of squared gradients.

    Raises:
        ValueError: such an optimiser; the message says which ones do.
    """
    name = type(optimizer).__name__
    states = [state for state in optimizer.state.values() if state]
    groups = optimizer.param_groups
    remembers = all("betas" in g or "alpha" in g or "rho" in g for g in groups) and name not in ("Adamax", "ASGD")
    if not remembers or any(not state.keys() & KEYS for state in states):
        raise ValueError(
            f"{name} keeps no average of squared gradients at the mode: use Adam, AdamW, NAdam, RAdam, RMSprop or "
            "Adadelta, or take the squared gradients of single data in a pass of their own, osc.laplace(..., "
            "structure='diag', curvature='empirical_fisher')."
        )


@dataclass(frozen=True)
class Sampling:
    """The batches that the optimiser has seen.

    Args:
        num_data: N, of the training data.
        batch_size: M, of one step; with accumulated gradients that of all its parts together.
        how: "shuffled" (epochs without replacement) or "replacement".
        drop_last: True if epochs end without the data that do not fill a batch.

    Raises:
        ValueError: a size out of its range, or an unknown name.
    """

    num_data: int
    batch_size: int
    how: str = "shuffled"
    drop_last: bool = False

    def __post_init__(self) -> None:
        choose("sampling", self.how, SAMPLINGS)
        if self.num_data < 2 or not 1 <= self.batch_size <= self.num_data:
            raise ValueError(
                f"batch_size={self.batch_size} of num_data={self.num_data}: a batch has at least one datum, and at "
                "most all of at least two."
            )

    def require_noise(self) -> None:
        """Refuse batches of all data.

        Raises:
            ValueError: such batches.
        """
        if self.batch_size == self.num_data and self.how == "shuffled":
            raise ValueError(
                f"each batch was all of the {self.num_data} data: at the mode its gradient is zero, and the second "
                "moment holds nothing of the curvature. Take smaller batches, or osc.laplace(..., structure='diag', "
                "curvature='empirical_fisher'), a pass with the squared gradients of single data."
            )

    def noise(self, size: int) -> float:
        """The variance of the mean over so many data, in that of one datum."""
        n = self.num_data
        return (n - size) / (size * (n - 1)) if self.how == "shuffled" else 1 / size

    def average(self, rule: Rule) -> tuple[float, float]:
        """The noise of a batch, averaged as the optimiser does, and the number of steps that the average is worth.

        The last batch of an epoch has the data that are left; where these are few it has most of the noise.
        """
        rest = 0 if self.how == "replacement" or self.drop_last else self.num_data % self.batch_size
        epoch = self.num_data // self.batch_size + bool(rest)
        length = min(rule.steps, round(WINDOW / (1 - rule.memory)) if rule.memory < 1 else rule.steps)
        age = torch.arange(length, dtype=torch.double)
        noise = torch.full_like(age, self.noise(self.batch_size))
        if rest:
            noise[(rule.steps - age) % epoch == 0] = self.noise(rest)
        parts = rule.memory**age * noise
        return float(parts.sum() / (rule.memory**age).sum()), float(parts.sum() ** 2 / parts.square().sum())


def warn_of_noise(steps: float) -> None:
    """Warn of an average that is worth so few steps that its noise shows."""
    if steps < SHORT:
        warnings.warn(
            f"the second moment is an average worth about {steps:.0f} steps, so that single precisions are off by some "
            f"{100 * (2 / steps) ** 0.5:.0f} %: train on with a higher memory (betas, alpha, rho), or call "
            "refresh(steps).",
            stacklevel=4,
        )


#: Batches with which a second moment is compared, and the factor between the two above which there is a warning.
COMPARED, FACTOR = 16, 3.0


@dataclass(frozen=True)
class BatchGradients:
    """∇ of the mean log likelihood of batches.

    Args:
        network: Network at the weights, in evaluation mode.
        likelihood: p(y|f).
        data: Training data, or a part of them.
        sampling: Batches of the training: these have the same size.
        labels: "data", or "drawn" for labels of the network.
        generator: Generator for the order of the data, and the labels.
    """

    network: Network
    likelihood: Likelihood
    data: Data
    sampling: Sampling
    labels: str = "data"
    generator: torch.Generator | None = None

    def __iter__(self) -> Iterator[tuple[int, Float[Tensor, " P"]]]:
        """Each with the number of its pass over the data, over and over; it ends where a pass is the one before.

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
        here = f.detach()
        if drawn:
            column = self.likelihood.sampled_root(here, y, 1, self.generator)[0]
        else:
            column = self.likelihood.score(here, y)
        parts = torch.autograd.grad(f, list(theta.values()), column / len(f), materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])

    def fisher(self, steps: int) -> Float[Tensor, " P"]:
        r"""Σ_i l_i² of the N single data, without bias, from so many batches.

        .. math:: \frac1S \sum_s g_s^2 - \bar g^2 \approx C (w - V), \qquad
                  F = N \big(C (1 - V) + \bar g^2\big)

        C is the variance of single gradients, w C that of a batch's mean and V C that of ḡ, the mean over passes of
        which each but the last is complete.

        Raises:
            ValueError: there are fewer than two different batches.
        """
        number, size, passes = self.sampling.num_data, self.sampling.batch_size, [0]
        total = squares = torch.zeros(())
        for _, (which, g) in zip(range(steps), self, strict=False):
            passes += [0] * (which + 1 - len(passes))
            passes[which] += 1
            total, squares = total + g.double(), squares + g.double().square()
        taken = sum(passes)
        if self.labels == "drawn":  # of mean zero, whatever the batch
            return number * size * squares / taken
        if taken < 2:
            raise ValueError(f"a variance needs at least two different batches of {size}, and the data have {taken}.")
        there = Sampling(count(self.data[0]) if is_pair(self.data) else number, size)
        there.require_noise()
        mean = total / taken
        off = sum((here / taken) ** 2 * there.noise(here * size) for here in passes)
        single = ((squares / taken - mean.square()) / (there.noise(size) - off)).clamp(min=0)
        return number * (single * (1 - off) + mean.square())

    def compare(self, fisher: Float[Tensor, " P"]) -> None:
        """Warn where Σ_i l_i² from the state of an optimiser is not that of the gradients at these weights."""
        try:
            here = self.fisher(COMPARED)
        except ValueError:  # too few of the data are there
            return
        ratio = float(fisher.double().sum() / here.sum().clamp(min=torch.finfo(torch.double).tiny))
        if not 1 / FACTOR <= ratio <= FACTOR:
            warnings.warn(
                f"the curvature in the state of the optimiser is {ratio:.2g} times that of a few batches at the "
                "weights as they are: either training had not come to rest, or batch_size, num_data or loss_scale are "
                "not those of the training. Let the learning rate fall to zero and the last steps be many, or call "
                "refresh(200).",
                stacklevel=4,
            )


#: Priors by name.
PRIORS = ("evidence", "validation", "l2", "adamw")


def chosen_prior(
    prior: str | float | Prior, moments: SecondMoments, scale: float, validation: Data | None
) -> tuple[Prior, Callable[[Gaussian], Gaussian]]:
    """The prior, and what is done to the posterior with it; ``scale`` is c N."""
    if not isinstance(prior, str):
        return as_prior(prior), unchanged
    choose("prior precision", prior, PRIORS)
    if prior == "evidence":
        return Layerwise(1.0), maximise_evidence
    if prior == "validation":
        if validation is None:
            raise ValueError("prior_precision='validation' needs held-out data: pass validation=(X, Y).")
        return Isotropic(1.0), lambda q: tune(q, validation)
    if (prior == "adamw") != moments.rule.decoupled or moments.free:
        kind = "a decoupled weight decay, as AdamW has," if prior == "adamw" else "a weight decay in the gradient"
        why = f"{moments.free[0]!r} has none" if moments.free else "this one has another kind"
        raise ValueError(
            f"prior_precision={prior!r} is for an optimiser with {kind} on all parameters, and {why}: give a number, "
            "'evidence' or 'validation'."
        )
    return Diagonal(scale * moments.decay * (moments.pull if prior == "adamw" else 1.0)), unchanged


def unchanged(q: Gaussian) -> Gaussian:
    return q


def printed_prior(prior: str | float | Prior, moments: SecondMoments) -> Prior:
    """1/λ + ε, a variance taken for a precision; λ is the weight decay where it is not given. [perone2021, eq. 6]"""
    if isinstance(prior, str) and prior in ("l2", "adamw"):
        decay = next(iter(moments.entries.values())).decay
    elif isinstance(prior, Isotropic) or not isinstance(prior, str | Prior):
        decay = float(as_prior(prior).precision)
    else:
        decay = 0.0
    if not decay > 0:
        raise ValueError(
            f"scaling='paper' needs the weight decay λ as a number, got prior_precision={prior!r}: give it, or 'adamw' "
            "or 'l2' for that of the optimiser."
        )
    return Isotropic(1 / decay + next(iter(moments.entries.values())).eps)
