"""The protocol of a method: what ``osculate.train``, the contract tests and the command line ask of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from osculate.batches import Data
from osculate.inputs import Inputs, drawn_outputs
from osculate.likelihoods import Likelihood
from osculate.posteriors import Posterior
from osculate.priors import Prior, fan_in
from osculate.tensorfiles import fill

#: The prior with the precision fan-in of each layer, by its name.
FAN_IN = "fan_in"
#: Seed of a network -> the network, with fresh weights: 0 for the first, 1 for the next.
MakeNetwork = Callable[[int], nn.Module]


@dataclass(frozen=True)
class Option:
    """An option of a method by name, as :meth:`Method.build` and the command line take it.

    Args:
        kind: Type of the value.
        words: Description for the help of the command line.
        default: Default of the command line; None where it follows from the run, or is that of the constructor.
    """

    kind: type
    words: str
    default: Any = None


#: The temperature of methods that have one; each says its default.
TEMPERATURE = Option(float, "temperature of the likelihood; below 1 the posterior is narrower")


class Method(nn.Module, ABC):
    """A way to reach a posterior by training.

    What it learns is a parameter, what it must remember is a buffer: training then moves, saves and resumes it without
    knowing more. A class with a ``name`` that ``osculate.methods`` imports is in its ``REGISTRY``: the contract tests
    and ``osculate train --method`` then have it.

    Attributes:
        model: Network f_θ; training changes it in place.
        likelihood: p(y|f).
        name: Name in the registry.
        usual: Settings of training that it takes where none are named.
        recommended: Further settings that the command line takes where none are named.
        refused: Settings that have no meaning for it, with the reason.
        options: Options of :meth:`build` by name.
        network_name: The network of its result, as tables name it.
        needs_trained_network: True if it starts from a network that is trained already.
    """

    model: nn.Module
    likelihood: Likelihood
    name: ClassVar[str]
    usual: ClassVar[Mapping[str, Any]] = {}
    recommended: ClassVar[Mapping[str, Any]] = {}
    refused: ClassVar[Mapping[str, str]] = {}
    options: ClassVar[Mapping[str, Option]] = {}
    network_name: ClassVar[str] = "MAP"
    needs_trained_network: ClassVar[bool] = False

    @classmethod
    def build(
        cls, network: MakeNetwork, likelihood: Likelihood, prior: float | str | Prior = 1.0, **options: Any
    ) -> "Method":
        """Make the method from fresh networks and options by name, as the command line and the contract tests do.

        Args:
            network: Function that makes the network with a number, 0 for the first.
            likelihood: p(y|f).
            prior: Precision, "fan_in", or an object of ``osc.priors``.
            **options: Values for :attr:`options`; by default arguments of the constructor.
        """
        model = network(0)
        return cls(model, likelihood, fan_in(model) if isinstance(prior, str) else prior, **options)

    @classmethod
    def defaults(cls, epochs: int, real_valued: bool) -> dict[str, Any]:
        """Defaults of :attr:`options` for a run with this many epochs, and with classes or real values as targets."""
        return {name: option.default for name, option in cls.options.items() if option.default is not None}

    def require_epochs(self, epochs: int) -> None:
        """Raise ValueError if a training of so many epochs leaves no posterior."""

    @abstractmethod
    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """The scalar to descend, for one batch.

        Args:
            x: Inputs of the batch, (B, ...).
            y: Targets of the batch, (B, ...).
            num_data: N, the size of the whole data set.
        """

    def choices(self) -> Mapping[str, Any]:
        """Settings by name, in which a resumed training must agree with the one that was begun."""
        return {}

    def log_prob(self, x: Inputs, y: Tensor) -> Float[Tensor, " B"]:
        """log p(y|x) of each held-out datum with the present network, for the validation NLL and early stopping.

        For a network with random codes, the bound on it by one draw.
        """
        f, divergence = drawn_outputs(self.model, x)
        self.likelihood.check(f, y)
        return self.likelihood.log_prob(f, y) - divergence

    def optimizer(self, make: Callable[..., Optimizer], lr: float) -> Optimizer:
        """The optimiser of the training: by default that of the settings, over all parameters that require a gradient.

        A group may have a "multiplier" of the learning rate.

        Args:
            make: Function that makes the optimiser of the settings from parameters (or groups) and a learning rate.
            lr: Learning rate.
        """
        return make([parameter for parameter in self.parameters() if parameter.requires_grad], lr)

    def prepare(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Make buffers whose shape follows from the data, before a checkpoint is read; by default nothing.

        Args:
            data: Training data, as for :meth:`end_epoch`.
        """

    def before_training(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Prepare the first epoch, not that of a resumed run; by default nothing.

        Args:
            data: Training data, as for :meth:`end_epoch`.
        """

    def end_epoch(self, epoch: int, epochs: int, data: Iterable[tuple[Inputs, Tensor]]) -> Mapping[str, float]:
        """End an epoch, in training mode; by default nothing.

        Args:
            epoch: Number of the epoch that has ended, from 1.
            epochs: Largest number of epochs.
            data: Training data in batches (x, y), which can be read any number of times, on the device where they were
                given; in their own order unless a loader shuffles them.

        Returns:
            Numbers for the epoch's row in the history, by name. State that must survive an interruption is in buffers.
        """
        return {}

    def after_training(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Compute from the data what :meth:`result` needs, at the final parameters and buffers; by default nothing.

        Args:
            data: Training data, as for :meth:`end_epoch`.
        """

    @abstractmethod
    def result(self) -> Posterior:
        """The posterior, as a frozen value."""


class FullBatch(Method):
    """A method that takes its own steps on all data, in place of an optimiser's on batches; one epoch is one step.

    The state that a resumed run needs is in buffers. The random numbers of a step follow from the seed
    and the number of the step.

    Attributes:
        converged: True if more steps would change nothing.
    """

    converged: bool | Tensor
    refused = dict.fromkeys(
        ("batch_size", "lr", "optimizer", "schedule", "patience"), "takes all data at once, with steps of its own"
    )

    @classmethod
    def build(
        cls, network: MakeNetwork, likelihood: Likelihood, prior: float | str | Prior = 1.0, **options: Any
    ) -> Method:
        """Make the method, with dropout and batch normalisation as the network predicts."""
        return super().build(lambda number: network(number).eval(), likelihood, prior, **options)

    @abstractmethod
    def begin(self, data: Data, epochs: int, seed: int) -> int:
        """Take the data; :meth:`step` goes on from where the buffers say.

        Args:
            data: Pair of tensors, or batches; read once.
            epochs: Largest number of steps, with those of an interrupted run.
            seed: Seed of the random numbers.

        Returns:
            N.
        """

    @abstractmethod
    def step(self) -> dict[str, int | float]:
        """One step; returns a row of the history, with the same names each time."""

    @property
    def device(self) -> torch.device:
        """The device of its network, on which it works."""
        return next(self.model.parameters()).device

    def checkpoint(self) -> dict[str, Tensor]:
        """The tensors that a resumed run needs."""
        return self.state_dict()

    def restore(self, tensors: Mapping[str, Tensor], path: Path) -> None:
        """Take over the tensors of a checkpoint, before :meth:`begin`.

        Raises:
            ValueError: they belong to another network.
        """
        fill(self, tensors, path)


def require_network(model: object, likelihood: object) -> None:
    """Refuse what is no network, or no likelihood.

    Raises:
        TypeError: either.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    if not isinstance(likelihood, Likelihood):
        raise TypeError(
            f"likelihood must be an object of osc.likelihoods, got {likelihood!r}: for example "
            "osc.likelihoods.Categorical() for classes, or osc.likelihoods.Gaussian(0.1) for real-valued targets."
        )


def has_labels(likelihood: Likelihood, y: Tensor) -> bool:
    """True if there is a target that the likelihood does not ignore."""
    counted = likelihood.counted(y)
    return counted is None or bool(counted.any())


def require_labels(found: bool) -> None:
    """Refuse data without a target.

    Raises:
        ValueError: none was found.
    """
    if not found:
        raise ValueError(
            "every target is one that the likelihood ignores: there is nothing to learn from. Check the targets, and "
            "the likelihood's ignore_index."
        )


def require_batch(y: Tensor, num_data: int) -> None:
    """Refuse a batch of nothing, or of no data.

    Raises:
        ValueError: one of them.
    """
    if not len(y) or num_data < 1:
        raise ValueError(
            f"a batch of {len(y)} of {num_data} data has no loss: pass at least one datum, and as num_data the size of "
            "the whole data set."
        )
