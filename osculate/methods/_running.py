"""The curvature of one datum as a running average over batches, kept apart from N, noise, and temperature."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.curvature.columns import GGN, Kind
from osculate.curvature.engine import Observation
from osculate.curvature.plan import Plan
from osculate.curvature.squared import squared_pass
from osculate.inputs import Inputs, moved, take
from osculate.likelihoods import Likelihood
from osculate.methods._fisher import RunningFisher
from osculate.methods._kept import diagonal_curvature
from osculate.parameters import Network, has_deterministic_layers, trainable
from osculate.posteriors.fit import observe
from osculate.priors import Prior
from osculate.structures import Curvature, Diag, PosteriorPrecision, Structure
from osculate.structures.approx_diag import output_diagonal

GAUSS_NEWTON = GGN()


class Running(nn.Module, ABC):
    r"""Ḡ, the average over past batches of their curvature per datum, and the noise of the Gaussian it belongs to.

    .. math:: \bar G_t = \frac{1 - \gamma}{1 - \gamma^t} \sum_{s \le t} \gamma^{t - s} \frac{1}{B_s} G_s, \qquad
              \theta - \mu \sim \mathcal N\big(0, [c\, \bar G + \operatorname{diag}(\delta)]^{-1}\big)

    Args:
        model: the network in training; the curvature is taken in a copy of it.
        likelihood: p(y|f).
        structure: of the curvature.
        memory: γ.
        kind: of curvature.
        names: of the parameters; all that are trained by default.
    """

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        structure: Structure,
        memory: float,
        kind: Kind = GAUSS_NEWTON,
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.network = Network(model, trainable(model) if names is None else names)
        self._kind = kind
        self.copy = self.network.module.eval()  # so that it moves with the rest
        self.structure, self.memory, self._likelihood = structure, memory, likelihood
        self._start: Observation | None = None

    def train(self, mode: bool = True) -> "Running":
        """The copy stays in evaluation mode: a curvature is that of the network as it predicts."""
        super().train(mode)
        self.copy.eval()
        return self

    def see(self, x: Inputs, y: Tensor) -> None:
        """Learn from the first batch how the network works on its inputs."""
        if self._start is None:
            batch = moved(take(x, slice(2)), self.network.device), y[:2].to(self.network.device)
            self._start = observe(self.network, self._likelihood, self._kind, batch, None)

    @property
    def _seen(self) -> Observation:
        if self._start is None:
            raise RuntimeError("the running curvature has seen no data yet.")
        return self._start

    def _empty(self, plan: Plan) -> Curvature:
        """The matrix before any data, on the device where the network is now."""
        network = self.network
        return self.structure.zero(plan.specs, network.space, network.state_dtype, network.device)

    @torch.no_grad()
    def place(self, model: nn.Module, offset: Mapping[str, Tensor] | None = None) -> None:
        """Put the copy where the model is, or at some offset from there."""
        here = dict(self.copy.named_parameters())
        for name, parameter in model.named_parameters():
            if offset is None or name not in offset:
                here[name].copy_(parameter)
            else:
                torch.add(parameter, offset[name], out=here[name])
        for mine, theirs in zip(self.copy.buffers(), model.buffers(), strict=True):
            mine.copy_(theirs)

    @abstractmethod
    def follow(self, x: Inputs, y: Tensor) -> None:
        """Take the curvature of a batch into the average, at the place of the copy."""

    def _batch(self, x: Inputs, y: Tensor) -> Observation:
        return replace(self._seen, batch=(moved(x, self.network.device), y.to(self.network.device)))

    def shares(self, model: nn.Module) -> bool:
        """Whether :meth:`along` can follow a model in the mode it is in."""
        return False

    def along(self, forward: Callable[[], Tensor], batch: tuple[Inputs, Tensor], theta: Mapping[str, Tensor]) -> Tensor:
        """The outputs of a forward pass of training, of which the curvature is taken into the average as well.

        Args:
            forward: the forward pass, a function of the weights.
            batch: (x, y).
            theta: the weights.
        """
        raise NotImplementedError

    @abstractmethod
    def of(self, num_data: int, plan: Plan) -> Curvature:
        """N Ḡ, for the blocks of a plan."""

    @abstractmethod
    def forget(self) -> None:
        """The state, or what the Gaussian was made from, has changed."""

    @abstractmethod
    def coloured(self, white: Float[Tensor, "S P"], factor: float, prior: Prior) -> Float[Tensor, "S P"]:
        """White noise, which is overwritten, to that of the Gaussian with c and δ (of the last call of `forget`)."""

    @abstractmethod
    def variance(self, factor: float, prior: Prior) -> Float[Tensor, " P"]:
        """Of each parameter."""


class RunningDiagonal(Running):
    """Of a diagonal: one vector in the order of θ, without a detour over blocks."""

    fisher: RunningFisher

    def see(self, x: Inputs, y: Tensor) -> None:
        if self._start is None:
            super().see(x, y)
            assert isinstance(self.structure, Diag)
            if self.structure.by_squares:  # which needs no blocks, and they take 8 bytes an entry
                self._start = replace(self._seen, plan=replace(self._seen.plan, blocks=()))
            network = self.network
            self.fisher = RunningFisher(network.space, self.memory, network.state_dtype, network.device)

    def follow(self, x: Inputs, y: Tensor) -> None:
        assert isinstance(self.structure, Diag)
        self.fisher.take(self.structure.diagonal(self._batch(x, y)), len(y))

    def shares(self, model: nn.Module) -> bool:
        """One squared backward pass is enough, layers do the same in training and evaluation, precision is full."""
        assert isinstance(self.structure, Diag)
        full = self.network.dtype == self.network.state_dtype
        return self.structure.by_squares and full and has_deterministic_layers(model)

    def along(self, forward: Callable[[], Tensor], batch: tuple[Inputs, Tensor], theta: Mapping[str, Tensor]) -> Tensor:
        here = self._batch(*batch)
        diagonal = lambda f: output_diagonal(here, f) / len(here.y)  # noqa: E731
        f, squares = squared_pass(forward, theta, diagonal, ordinary_after=True)
        average = self.fisher.named
        for name, square in squares.items():
            average[name].lerp_(square, 1 - self.memory)
        self.fisher.gained()
        return f

    def estimate_from(
        self, theta: Mapping[str, Tensor], noise: Float[Tensor, " P"], factor: float, scale: float, prior: Prior
    ) -> None:
        """Take the gradient of the coming backward pass into the average (:meth:`RunningFisher.take_drawn`).

        Args:
            theta: θ, part of the graph.
            noise: θ − μ; the backward pass, of which there is to be one, overwrites it.
            factor: c.
            scale: of the curvature that the gradient is of, in units of the average.
            prior: with the precisions δ.
        """
        self.fisher.settle()
        ridged = self.fisher.ridged(factor, self._precisions(prior))
        offsets, sums = (self.network.space.unflatten(each) for each in (noise, ridged))
        average = self.fisher.named
        for name, tensor in theta.items():
            take = partial(self.fisher.take_drawn, average[name], offsets[name])
            tensor.register_hook(lambda g, take=take, ridged=sums[name]: take(g, ridged, factor, scale))
        self.fisher.forget()  # what the backward pass will change

    def of(self, num_data: int, plan: Plan) -> Curvature:
        return diagonal_curvature(self._empty(plan), self.fisher.average * num_data)

    def forget(self) -> None:
        self.fisher.forget()

    def _precisions(self, prior: Prior) -> Float[Tensor, " P"]:
        return prior.vector(self.network.space).detach()

    def coloured(self, white: Float[Tensor, "S P"], factor: float, prior: Prior) -> Float[Tensor, "S P"]:
        return white.mul_(self.fisher.deviations(factor, self._precisions(prior)))

    def variance(self, factor: float, prior: Prior) -> Float[Tensor, " P"]:
        return self.fisher.deviations(factor, self._precisions(prior)).square()


class RunningBlocks(Running):
    """Of any structure whose states add."""

    weight: Tensor

    def __init__(self, model: nn.Module, likelihood: Likelihood, structure: Structure, memory: float) -> None:
        super().__init__(model, likelihood, structure, memory)
        #: 1 − γ^t, the sum of the weights so far.
        self.register_buffer("weight", torch.zeros((), dtype=torch.double))
        self._precision: PosteriorPrecision | None = None

    def see(self, x: Inputs, y: Tensor) -> None:
        if self._start is None:
            super().see(x, y)
            for name, tensor in self._empty(self._seen.plan).tensors().items():
                self.register_buffer(_buffer(name), tensor)

    def follow(self, x: Inputs, y: Tensor) -> None:
        fresh = self._empty(self._seen.plan)
        self.structure.add(fresh, self._batch(x, y))
        fresh.finish()
        for name, tensor in fresh.tensors().items():
            self.get_buffer(_buffer(name)).mul_(self.memory).add_(tensor, alpha=(1 - self.memory) / len(y))
        self.weight.mul_(self.memory).add_(1 - self.memory)
        self.forget()

    def of(self, num_data: int, plan: Plan) -> Curvature:
        empty, scale = self._empty(plan), num_data / float(self.weight)
        return empty.with_tensors({name: self.get_buffer(_buffer(name)) * scale for name in empty.tensors()})

    def forget(self) -> None:
        self._precision = None

    def _gaussian(self, factor: float, prior: Prior) -> PosteriorPrecision:
        if self._precision is None:
            self._precision = self.of(1, self._seen.plan).precision(factor, prior)
        return self._precision

    def coloured(self, white: Float[Tensor, "S P"], factor: float, prior: Prior) -> Float[Tensor, "S P"]:
        return self._gaussian(factor, prior).colour(white)

    def variance(self, factor: float, prior: Prior) -> Float[Tensor, " P"]:
        return self._gaussian(factor, prior).variance()


def _buffer(name: str) -> str:
    return "average_" + name.replace(".", "_")
