"""The curvature of one datum as a running average over batches, kept apart from N, noise, and temperature."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.curvature.columns import GGN
from osculate.curvature.observation import Observation
from osculate.curvature.plan import Plan
from osculate.curvature.squared import squared_pass
from osculate.inputs import Inputs, moved, take
from osculate.likelihoods import Likelihood
from osculate.methods._pass import observe
from osculate.parameters import Network, has_deterministic_layers, trainable
from osculate.priors import Prior
from osculate.structures import Curvature, Diag, PosteriorPrecision, Structure
from osculate.structures.approx_diag import output_diagonal
from osculate.structures.blocks import DiagonalBlock


class Running(nn.Module, ABC):
    r"""Ḡ, the average over past batches of their curvature per datum, and the noise of the Gaussian it belongs to.

    .. math:: \bar G_t = \frac{1 - \gamma}{1 - \gamma^t} \sum_{s \le t} \gamma^{t - s} \frac{1}{B_s} G_s, \qquad
              \theta - \mu \sim \mathcal N\big(0, [c\, \bar G + \operatorname{diag}(\delta)]^{-1}\big)

    Args:
        model: the network in training; the curvature is taken in a copy of it.
        likelihood: p(y|f).
        structure: of the curvature.
        memory: γ.
    """

    weight: Tensor

    def __init__(self, model: nn.Module, likelihood: Likelihood, structure: Structure, memory: float) -> None:
        super().__init__()
        self.network = Network(model, trainable(model))
        self.copy = self.network.module.eval()  # so that it moves with the rest
        self.structure, self.memory, self._likelihood = structure, memory, likelihood
        #: 1 − γ^t, the sum of the weights so far.
        self.register_buffer("weight", torch.zeros((), dtype=torch.double))
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
            self._start = observe(self.network, self._likelihood, GGN(), batch, None)

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

    def follow(self, x: Inputs, y: Tensor) -> None:
        """Take the curvature of a batch into the average, at the place of the copy."""
        self._add(self._batch(x, y), (1 - self.memory) / len(y))
        self._gained()

    def _batch(self, x: Inputs, y: Tensor) -> Observation:
        return replace(self._seen, batch=(moved(x, self.network.device), y.to(self.network.device)))

    def _gained(self) -> None:
        self.weight.mul_(self.memory).add_(1 - self.memory)
        self.forget()

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
    def _add(self, batch: Observation, share: float) -> None:
        """γ times the state so far and ``share`` times the curvature of a batch."""

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

    values: Tensor

    def __init__(self, model: nn.Module, likelihood: Likelihood, structure: Diag, memory: float) -> None:
        super().__init__(model, likelihood, structure, memory)
        self._deviation: Tensor | None = None

    def see(self, x: Inputs, y: Tensor) -> None:
        if self._start is None:
            super().see(x, y)
            if self.structure.by_squares:  # which needs no blocks, and they take 8 bytes an entry
                self._start = replace(self._seen, plan=replace(self._seen.plan, blocks=()))
            network = self.network
            values = torch.zeros(network.space.size, dtype=network.state_dtype, device=network.device)
            self.register_buffer("values", values)

    def _add(self, batch: Observation, share: float) -> None:
        assert isinstance(self.structure, Diag)
        self.values.mul_(self.memory).add_(self.structure.diagonal(batch), alpha=share)

    def shares(self, model: nn.Module) -> bool:
        """One squared backward pass is enough, layers do the same in training and evaluation, precision is full."""
        full = self.network.dtype == self.network.state_dtype
        return self.structure.by_squares and full and has_deterministic_layers(model)

    def along(self, forward: Callable[[], Tensor], batch: tuple[Inputs, Tensor], theta: Mapping[str, Tensor]) -> Tensor:
        here = self._batch(*batch)
        diagonal = lambda f: output_diagonal(here, f) / len(here.y)  # noqa: E731
        f, squares = squared_pass(forward, theta, diagonal, ordinary_after=True)
        average = self.network.space.unflatten(self.values)
        for name, square in squares.items():
            average[name].lerp_(square, 1 - self.memory)
        self._gained()
        return f

    def estimate_from(
        self, theta: Mapping[str, Tensor], noise: Float[Tensor, " P"], factor: float, scale: float, prior: Prior
    ) -> None:
        r"""Take ĥ = ∇ (θ − μ) / σ² of the coming backward pass into the average, so that it stays positive. [shen2024]

        .. math:: h \leftarrow \gamma h + (1 - \gamma) \hat h
                  + \tfrac12 (1 - \gamma)^2 \frac{(h - \hat h)^2}{h + \delta / c}

        An unbiased estimate of the curvature of one datum, of any sign. The average that it enters is not: the last
        term grows with the variance of ĥ, which is large where the gradient is.

        Args:
            theta: θ, part of the graph.
            noise: θ − μ.
            factor: c.
            scale: of the curvature that the gradient is of, in units of the average.
            prior: with the precisions δ.
        """
        self.values.div_(float(self.weight))
        self.weight.fill_(1)
        self.forget()
        delta = prior.vector(self.network.space).detach()
        average, offsets, deltas = (self.network.space.unflatten(each) for each in (self.values, noise, delta))
        for name, tensor in theta.items():
            hook = partial(self._take_gradient, average[name], offsets[name], deltas[name], factor, scale)
            tensor.register_hook(hook)

    @torch.no_grad()
    def _take_gradient(
        self, h: Tensor, noise: Tensor, delta: Tensor, factor: float, scale: float, gradient: Tensor
    ) -> None:
        """That of one parameter tensor, in few passes over it: the precision 1/σ² is c (h + δ/c)."""
        step, precision = 1 - self.memory, torch.add(delta, h, alpha=factor)
        miss = torch.addcmul(h, noise.mul_(gradient), precision, value=-1 / scale)
        h.add_(miss.square().div_(precision), alpha=0.5 * step**2 * factor).add_(miss, alpha=-step)

    def of(self, num_data: int, plan: Plan) -> Curvature:
        empty, values = self._empty(plan), self.values * (num_data / float(self.weight))
        blocks = []
        for block in empty.blocks:
            assert isinstance(block, DiagonalBlock)
            blocks.append(replace(block, values=values[block.positions]))
        return replace(empty, blocks=tuple(blocks))

    def forget(self) -> None:
        self._deviation = None

    def _deviations(self, factor: float, prior: Prior) -> Float[Tensor, " P"]:
        if self._deviation is None:
            delta = prior.vector(self.network.space).detach()
            self._deviation = torch.add(delta, self.values, alpha=factor / float(self.weight)).rsqrt_()
        return self._deviation

    def coloured(self, white: Float[Tensor, "S P"], factor: float, prior: Prior) -> Float[Tensor, "S P"]:
        return white.mul_(self._deviations(factor, prior))

    def variance(self, factor: float, prior: Prior) -> Float[Tensor, " P"]:
        return self._deviations(factor, prior).square()


class RunningBlocks(Running):
    """Of any structure whose states add."""

    def __init__(self, model: nn.Module, likelihood: Likelihood, structure: Structure, memory: float) -> None:
        super().__init__(model, likelihood, structure, memory)
        self._precision: PosteriorPrecision | None = None

    def see(self, x: Inputs, y: Tensor) -> None:
        if self._start is None:
            super().see(x, y)
            for name, tensor in self._empty(self._seen.plan).tensors().items():
                self.register_buffer(_buffer(name), tensor)

    def _add(self, batch: Observation, share: float) -> None:
        fresh = self._empty(self._seen.plan)
        self.structure.add(fresh, batch)
        fresh.finish()
        for name, tensor in fresh.tensors().items():
            self.get_buffer(_buffer(name)).mul_(self.memory).add_(tensor, alpha=share)

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
