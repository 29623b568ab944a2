"""The protocol of a method, as used by ``osculate.train``, the contract tests and the command line."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from osculate.batches import Data
from osculate.distributed import Group
from osculate.inputs import Inputs, drawn_outputs
from osculate.likelihoods import Likelihood
from osculate.methods._share import WHOLE, Share
from osculate.parameters import ParameterSpace, require_unscripted
from osculate.posteriors import Gaussian, Posterior
from osculate.tensorfiles import fill

#: Name of the prior whose precision in each layer is the layer's fan-in.
FAN_IN = "fan_in"
#: A prior precision, the name of a prior, an object of ``osc.priors``, or an earlier posterior.
PriorLike: TypeAlias = Any
#: A function of the number of a network, counted from 0, that makes it with fresh weights.
MakeNetwork = Callable[[int], nn.Module]


@dataclass(frozen=True)
class Option:
    """An option of a method, for :meth:`Method.build` and the command line.

    Args:
        kind: Type of the value.
        words: Description for the help of the command line.
        default: Default of the command line; None if it depends on the run or is the constructor's.
    """

    kind: type
    words: str
    default: Any = None


#: The temperature of tempered methods, each of which sets its own default.
TEMPERATURE = Option(float, "temperature of the likelihood; below 1 the posterior is narrower")


class Method(nn.Module, ABC):
    """A method that trains a network and returns a posterior.

    Learned quantities are parameters and all other state is in buffers, so that training can move, save and resume any
    method. A class with a ``name`` that ``osculate.methods`` imports enters its ``REGISTRY``, and with it the contract
    tests and ``osculate train --method``.

    Attributes:
        model: Network f_θ; training changes it in place.
        likelihood: p(y|f).
        share: The share of this process in a step; training sets it where several processes take steps together.
        name: Name in the registry.
        fixed_settings: Names of attributes that must not change when training is resumed.
        usual: Default settings of training.
        recommended: Further defaults of the command line.
        refused: Settings that have no meaning for this method, with the reason.
        has_plain_steps: True if the steps are those of an optimiser on a loss that does not change, so that trials can
            choose the learning rate and training can go on for further rounds.
        takes_trials: True if trials can choose the learning rate although the loss changes during training.
        options: Options of :meth:`build` by name.
        network_name: Name in tables of the network of the result.
        posterior_name: Name in tables of the result; by default that in the registry.
        needs_trained_network: True if the method starts from a trained network.
        by_evidence: True if training tunes prior precisions and noise scale by the evidence, from the given values.
        result_is_mode: True if the network of the result is at a mode, around which another posterior can be fitted.
        needs_dropout: True if the network must have dropout layers.
        needs_smooth_network: True if the method needs second derivatives of the network.
        hidden_units: Hidden units of the default network, for a method whose cost grows fast with the network.
        for_autoencoders: True if the default network for images is an autoencoder.
        training_temperatures: Default temperatures in training, of classifiers (False) and autoencoders (True), after
            which the temperature is chosen on held-out data; empty for a method without this choice.
        adds_prior_network: True if the networks of the result have a fixed random network added to their outputs.
        in_parts: True if each of several processes trains a part of the method alone, such as one member of an
            ensemble, on all data (:meth:`take_part`, :meth:`exchange`).
        alone: Why one process alone trains the method; empty if several can.
    """

    model: nn.Module
    likelihood: Likelihood
    share: Share = WHOLE
    name: ClassVar[str]
    fixed_settings: ClassVar[tuple[str, ...]] = ()
    usual: ClassVar[Mapping[str, Any]] = {}
    recommended: ClassVar[Mapping[str, Any]] = {}
    refused: ClassVar[Mapping[str, str]] = {}
    has_plain_steps: ClassVar[bool] = False
    takes_trials: ClassVar[bool] = False
    options: ClassVar[Mapping[str, Option]] = {}
    network_name: ClassVar[str] = "MAP"
    posterior_name: ClassVar[str] = ""
    needs_trained_network: ClassVar[bool] = False
    by_evidence: ClassVar[bool] = False
    result_is_mode: ClassVar[bool] = True
    needs_dropout: ClassVar[bool] = False
    needs_smooth_network: ClassVar[bool] = False
    hidden_units: ClassVar[tuple[int, ...]] = ()
    for_autoencoders: ClassVar[bool] = False
    training_temperatures: ClassVar[Mapping[bool, float]] = {}
    adds_prior_network: ClassVar[bool] = False
    in_parts: ClassVar[bool] = False
    alone: ClassVar[str] = ""

    @classmethod
    def build(cls, network: MakeNetwork, likelihood: Likelihood, prior: PriorLike = 1.0, **options: Any) -> "Method":
        """Make the method from fresh networks and named options; used by the command line and the contract tests.

        Args:
            network: Function that makes network number n, counted from 0.
            likelihood: p(y|f).
            prior: Precision, "fan_in", or an object of ``osc.priors``.
            **options: Values of :attr:`options`; by default passed to the constructor.
        """
        return cls(network(0), likelihood, prior, **options)

    @classmethod
    def defaults(cls, epochs: int, real_valued: bool) -> dict[str, Any]:
        """Defaults of :attr:`options` that depend on the number of epochs and on the type of the targets."""
        return {name: option.default for name, option in cls.options.items() if option.default is not None}

    def store(self, **state: Tensor) -> None:
        """Register buffers by name, with which the method is moved, saved and resumed."""
        for name, value in state.items():
            self.register_buffer(name, value)

    def require_epochs(self, epochs: int) -> None:
        """Raise ValueError if training for this number of epochs yields no posterior."""

    @abstractmethod
    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """The training objective on one batch.

        Args:
            x: Inputs of the batch, (B, ...), or several in a tuple or mapping.
            y: Targets of the batch, (B, ...).
            num_data: N, the size of the whole data set.

        Raises:
            ValueError: the batch is empty or ``num_data`` is not positive; not every method checks this.
        """

    def choices(self) -> Mapping[str, Any]:
        """Settings by name that must not change when training is resumed."""
        return {name: getattr(self, name) for name in self.fixed_settings}

    def log_prob(self, x: Inputs, y: Tensor) -> Float[Tensor, " B"]:
        """log p(y|x) of each held-out datum under the current network, for the validation NLL and early stopping.

        For a network with random codes, a lower bound on it from one sample.
        """
        f, divergence = drawn_outputs(self.model, x)
        self.likelihood.check(f, y)
        return self.likelihood.log_prob(f, y) - divergence

    def optimizer(self, make: Callable[..., Optimizer], lr: float) -> Optimizer:
        """The optimiser: by default that of the settings, over all parameters that require a gradient.

        A parameter group may have a "multiplier" of the learning rate.

        Args:
            make: Function that makes the optimiser of the settings from parameters (or groups) and a learning rate.
            lr: Learning rate.
        """
        return make([parameter for parameter in self.parameters() if parameter.requires_grad], lr)

    def prepare(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Make buffers whose shape depends on the data, before a checkpoint is read; does nothing by default.

        Args:
            data: Training data, as for :meth:`end_epoch`.
        """

    def before_training(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Prepare a new run before its first epoch, but not a resumed one; does nothing by default.

        Args:
            data: Training data, as for :meth:`end_epoch`.
        """

    def end_step(self) -> None:
        """End a step, after that of the optimiser; does nothing by default.

        Several processes average their gradients. A method that updates other state from a batch makes it the same in
        all of them, by its ``share``, here or in :meth:`loss`.
        """

    def end_epoch(self, epoch: int, epochs: int, data: Iterable[tuple[Inputs, Tensor]]) -> Mapping[str, float]:
        """End an epoch, in training mode; does nothing by default.

        Args:
            epoch: Number of the epoch that has ended, counted from 1.
            epochs: Largest number of epochs.
            data: Training data in batches (x, y), which can be read any number of times, on their original device and
                in their original order unless a loader shuffles them.

        Returns:
            Numbers for the epoch's row in the history, by name. State that must survive an interruption belongs in
            buffers.
        """
        return {}

    def after_training(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Prepare :meth:`result` from the data, at the final parameters and buffers; does nothing by default.

        Args:
            data: Training data, as for :meth:`end_epoch`.
        """

    def take_part(self, processes: Group) -> None:
        """Restrict a method ``in_parts`` to the part of this process, before a run.

        Raises:
            ValueError: there are more processes than parts.
        """

    def exchange(self, processes: Group) -> None:
        """Give all processes the parts of each, after a run."""

    @abstractmethod
    def result(self) -> Posterior:
        """The posterior, as a frozen value."""


class Fitted(Method):
    """A method that makes its posterior, a Gaussian, when training ends."""

    num_data: Tensor
    _posterior: Gaussian | None = None

    def store_size(self, y: Tensor, num_data: int) -> None:
        """Store N before the loss of a batch; raise ValueError if the batch is empty or N not positive."""
        if not len(y) or num_data < 1:
            raise ValueError(
                f"a batch of {len(y)} of {num_data} data has no loss: pass at least one datum, and the size of the "
                "whole data set as num_data."
            )
        self.num_data.fill_(num_data)

    def result(self) -> Gaussian:
        """The trained posterior.

        Raises:
            RuntimeError: the method has not been trained.
        """
        if self._posterior is None:
            raise RuntimeError("this method has not been trained: use osc.train(method, data).")
        return self._posterior


class FullBatch(Method):
    """A method that takes its own full-batch steps in place of an optimiser's; one epoch is one step.

    The state that a resumed run needs is in buffers. The random numbers of a step depend on the seed and the number of
    the step only.

    Attributes:
        converged: True if further steps would change nothing.
    """

    converged: bool | Tensor
    alone = "takes its steps on all data at once"
    refused = dict.fromkeys(
        ("batch_size", "lr", "optimizer", "schedule", "patience"), "takes its own steps on all data at once"
    )

    @classmethod
    def build(cls, network: MakeNetwork, likelihood: Likelihood, prior: PriorLike = 1.0, **options: Any) -> Method:
        """Make the method, with dropout and batch normalisation in evaluation mode."""
        return super().build(lambda number: network(number).eval(), likelihood, prior, **options)

    @abstractmethod
    def begin(self, data: Data, epochs: int, seed: int) -> int:
        """Store the data; :meth:`step` continues from the state in the buffers.

        Args:
            data: Pair of tensors, or batches; read once.
            epochs: Largest number of steps, including those before an interruption.
            seed: Seed of the random numbers.

        Returns:
            N.
        """

    @abstractmethod
    def step(self) -> dict[str, int | float]:
        """Take one step and return its row of the history, with the same names each time."""

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next(self.model.parameters()).device

    def checkpoint(self) -> dict[str, Tensor]:
        """The tensors that a resumed run needs."""
        return self.state_dict()

    def restore(self, tensors: Mapping[str, Tensor], path: Path) -> None:
        """Restore the tensors of a checkpoint, before :meth:`begin`.

        Raises:
            ValueError: the tensors belong to another network.
        """
        fill(self, tensors, path)


def require_network(model: object, likelihood: object) -> None:
    """Raise an error if ``model`` is not a module or ``likelihood`` not a likelihood.

    Raises:
        TypeError: one of them is of another type.
        ValueError: the parameters are sharded over processes: such a module ignores other weights that it is given.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    require_unscripted(model)
    for name, parameter in model.named_parameters():
        if type(parameter.data).__name__ == "DTensor":
            raise ValueError(
                f"{name} is sharded over processes (fully_shard), and a sharded network ignores the weights that a "
                "posterior gives it: load the full state dict (torch.distributed.checkpoint.state_dict."
                "get_model_state_dict with full_state_dict=True) into a network that is not sharded."
            )
    if not isinstance(likelihood, Likelihood):
        raise TypeError(
            f"likelihood must be an object of osc.likelihoods, got {likelihood!r}: for example "
            "osc.likelihoods.Categorical() for classes, or osc.likelihoods.Gaussian(0.1) for real-valued targets."
        )


def require_parts(parts: int, what: str, processes: Group) -> None:
    """Raise ValueError if there are more processes than parts of a method."""
    if processes.size > parts:
        raise ValueError(
            f"{parts} {what} are trained by at most {parts} processes, one each, and these are {processes.size}: start "
            f"fewer processes, or make {processes.size} {what}."
        )


def unwrapped(model: nn.Module) -> nn.Module:
    """The network within DistributedDataParallel, which Lightning, accelerate and torchrun scripts wrap around it."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def counter() -> Tensor:
    """Make a counter that starts at zero, for :meth:`Method.store`."""
    return torch.zeros((), dtype=torch.long)


@torch.no_grad()
def set_parameters(module: nn.Module, space: ParameterSpace, theta: Float[Tensor, " P"]) -> None:
    """Set parameters of a module, in place, from one vector."""
    for name, value in space.unflatten(theta).items():
        module.get_parameter(name).copy_(value)


def require_memory(name: str, value: float) -> None:
    """Raise ValueError unless the weight of a previous average is at least 0 and below 1."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value}.")


def has_labels(likelihood: Likelihood, y: Tensor) -> bool:
    """Return True if the likelihood does not ignore all targets."""
    counted = likelihood.counted(y)
    return counted is None or bool(counted.any())


def require_labels(found: bool) -> None:
    """Raise ValueError if no target was found that the likelihood does not ignore."""
    if not found:
        raise ValueError(
            "every target is one that the likelihood ignores: there is nothing to learn from. Check the targets and "
            "the likelihood's ignore_index."
        )
