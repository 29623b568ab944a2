"""A running average of the curvature over batches, and its Gaussian."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.batches import Data, as_batches
from osculate.curvature.columns import GGN, Kind
from osculate.curvature.engine import Observation
from osculate.curvature.plan import Plan
from osculate.curvature.squared import squared_pass
from osculate.distributed import ALONE, Group
from osculate.inputs import Inputs, moved, take
from osculate.likelihoods import Likelihood
from osculate.methods._share import WHOLE, Share
from osculate.parameters import Network, ParameterSpace, has_deterministic_layers, trainable
from osculate.posteriors import Fit, Gaussian
from osculate.posteriors.fit import first_rows, observe
from osculate.priors import Prior
from osculate.structures import Curvature, Diag, PosteriorPrecision, Structure
from osculate.structures.approx_diag import output_diagonal
from osculate.structures.blocks import DiagonalBlock


class RunningFisher(nn.Module):
    r"""F̄, the running average of the diagonal Fisher information of one datum, and its Gaussian.

    .. math:: \bar F_t = \frac{1 - \gamma}{1 - \gamma^t} \sum_{s \le t} \gamma^{t - s} F_s, \qquad
              \theta - \mu \sim \mathcal N\big(0, \operatorname{diag}(c \bar F + \delta)^{-1}\big), \qquad c = N / T

    F_s comes from squared gradients of single data (:meth:`add_diagonal`), from the squared gradient of a batch
    (:meth:`add_batch_gradient`), or from the gradient at sampled weights (:meth:`add_sampled_gradient`). Variational
    Laplace, L2M (Adam's second moment), IVON and VOGN share this average: they differ in F_s, and in whether gradients
    are taken at sampled weights or at the mean. [unlu2021; perone2021; shen2024; khan2018]

    Args:
        space: The parameters.
        memory: γ.
        dtype: Type of the average.
        device: Device of the average.
    """

    values: Tensor
    weight: Tensor

    def __init__(self, space: ParameterSpace, memory: float, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.space, self.memory = space, memory
        self.register_buffer("values", torch.zeros(space.size, dtype=dtype, device=device))
        #: 1 − γ^t, the sum of the weights so far.
        self.register_buffer("weight", torch.zeros((), dtype=torch.double))
        self._ridged: Tensor | None = None
        self._deviation: Tensor | None = None
        self._made_from = (0, 0.0, 0.0)  # key of the cache: state of the average, c, and the scale of δ

    @property
    def average(self) -> Float[Tensor, " P"]:
        """F̄."""
        return self.values / float(self.weight)

    @property
    def named(self) -> dict[str, Tensor]:
        """Views of the sum of weighted terms, by parameter."""
        return self.space.unflatten(self.values)

    def start(self, values: Float[Tensor, " P"] | float) -> None:
        """Initialise the average, with the weights so far."""
        self.values.copy_(torch.as_tensor(values, dtype=self.values.dtype))
        self.weight.fill_(1)

    def normalise(self) -> None:
        """Normalise the weights to one without changing the average."""
        if float(self.weight) != 1:
            self.values.div_(float(self.weight))
            self.weight.fill_(1)

    @torch.no_grad()
    def add_diagonal(self, diagonal: Float[Tensor, " P"], size: int) -> None:
        """Add Σ_b F_b of a batch: the sum of exact curvatures, or of squared gradients of single data.

        Args:
            diagonal: The sum over the batch, or over those of all processes.
            size: B.
        """
        self.values.mul_(self.memory).add_(diagonal, alpha=(1 - self.memory) / size)
        self.count_term()

    @torch.no_grad()
    def add_batch_gradient(self, gradients: Mapping[str, Tensor], size: int, share: Share = WHOLE) -> None:
        """Add B ḡ², where ḡ is the gradient of the mean log likelihood of a batch.

        The estimate is unbiased for labels sampled independently from the network, since scores of different data are
        then uncorrelated; for the labels of the data it is unbiased at a mode.

        Args:
            gradients: ḡ, by parameter.
            size: B.
            share: The share of this process, if ḡ is the gradient of its own batch.
        """
        squares = [g.to(self.values.dtype).square() for g in gradients.values()]
        share.average_(squares)
        average = self.named
        averages = [average[name] for name in gradients]
        torch._foreach_mul_(averages, self.memory)
        torch._foreach_add_(averages, squares, alpha=(1 - self.memory) * size)
        self.count_term()

    def count_term(self) -> None:
        """Update the sum of the weights for one more term."""
        self.weight.mul_(self.memory).add_(1 - self.memory)

    @torch.no_grad()
    def add_sampled_gradient(
        self, h: Tensor, noise: Tensor, gradient: Tensor, ridged: Tensor, factor: float, scale: float = 1.0
    ) -> None:
        r"""Add ĥ = ∇ (θ − μ) / σ² of one parameter tensor at sampled weights, keeping the average positive.

        .. math:: h \leftarrow \gamma h + (1 - \gamma) \hat h
                  + \tfrac12 (1 - \gamma)^2 \frac{(h - \hat h)^2}{h + \delta / c}, \qquad
                  \sigma^{-2} = c (h + \delta / c)

        ĥ is an unbiased estimate of the curvature of one datum and can be negative. The average is biased: the last
        term grows with the variance of ĥ, which is large for large gradients. The weights must add up to one
        (:meth:`start`, :meth:`normalise`). [shen2024]

        Args:
            h: The average of this tensor, a view of :attr:`named` that is updated.
            noise: θ − μ; overwritten.
            gradient: Gradient of the mean negative log likelihood at θ.
            ridged: h + δ/c (:meth:`ridged`); overwritten.
            factor: c.
            scale: Scale of the curvature behind the gradient, in units of the average.
        """
        step = 1 - self.memory
        miss = torch.addcmul(h, noise.mul_(gradient), ridged, value=-factor / scale, out=noise)
        # h − s miss + s²/2 miss²/(h + δ/c), as a product; in place, as allocation costs as much as the arithmetic
        h.addcmul_(miss, torch.addcdiv(miss.new_tensor(-step), miss, ridged, value=0.5 * step**2, out=ridged))

    def clear_cache(self) -> None:
        """Drop the cached sums, for new precisions δ or to free their memory."""
        self._ridged = self._deviation = None

    def _apply(self, *args: Any, **kwargs: Any) -> "RunningFisher":
        self.clear_cache()
        return super()._apply(*args, **kwargs)

    def ridged(self, factor: float, delta: Float[Tensor, " P"], scale: float = 1.0) -> Float[Tensor, " P"]:
        """F̄ + s δ/c, with δ of the first call after :meth:`clear_cache`."""
        made_from = (self.values._version, factor, scale)
        if self._ridged is None or made_from != self._made_from:
            average = self.values if float(self.weight) == 1 else self.average
            self._ridged, self._deviation = torch.add(average, delta, alpha=scale / factor), None
            self._made_from = made_from
        return self._ridged

    def deviations(self, factor: float, delta: Float[Tensor, " P"], scale: float = 1.0) -> Float[Tensor, " P"]:
        """σ of each parameter with prior precisions s δ, with δ of the first call after :meth:`clear_cache`."""
        ridged = self.ridged(factor, delta, scale)
        if self._deviation is None:
            self._deviation = ridged.rsqrt().mul_(factor**-0.5)
        return self._deviation


def diagonal_curvature(empty: Curvature, values: Float[Tensor, " P"]) -> Curvature:
    """A diagonal, given in the order of θ, in the blocks of an empty matrix."""
    blocks = []
    for block in empty.blocks:
        assert isinstance(block, DiagonalBlock)
        blocks.append(replace(block, values=values[block.positions].to(block.values)))
    return replace(empty, blocks=tuple(blocks))


@torch.no_grad()
def gaussian_with_curvature(
    network: Network,
    likelihood: Likelihood,
    prior: Prior,
    data: Data,
    curvature: Callable[[int, Plan], Curvature],
    num_data: int | None = None,
    processes: Group = ALONE,
) -> Gaussian:
    """The posterior at the network's parameters with a given curvature.

    Args:
        network: Network at the mode, in evaluation mode.
        likelihood: p(y|f) of the curvature.
        prior: p(θ).
        data: Data for the plan of the network and the statistics of the likelihood.
        curvature: Function of N and the plan that returns the curvature.
        num_data: N, to which the statistics are scaled; by default the number of data passed.
        processes: Processes each of which passes its share of the data.
    """
    statistics: dict[str, Tensor] = {}
    size, first = 0, None
    for x, y in as_batches(data):
        first = first or first_rows(x, y)
        y = y.to(network.device)
        f = network(x)
        likelihood.check(f, y)
        for name, value in likelihood.statistics(f, y).items():
            statistics[name] = statistics.get(name, torch.zeros_like(value)) + value
        size += len(y)
    assert first is not None
    statistics = {name: processes.summed(value) for name, value in statistics.items()}
    size = sum(processes.gather(size))
    total = num_data or size
    statistics = {name: value * (total / size) for name, value in statistics.items()}
    plan = observe(network, likelihood, GGN(), first, None).plan
    fit = Fit(curvature(total, plan), likelihood, statistics, total, plan, network, GGN.name)
    return Gaussian(fit, likelihood, prior, first_data=first, data=data).noted(processes=processes)


def constant_diagonal(network: Network, values: Float[Tensor, " P"]) -> Callable[[int, Plan], Curvature]:
    """The ``curvature`` of :func:`gaussian_with_curvature` for a diagonal in the order of θ, summed over all data."""

    def curvature(num_data: int, plan: Plan) -> Curvature:
        empty = Diag().zero(plan.specs, network.space, network.state_dtype, network.device)
        return diagonal_curvature(empty, values)

    return curvature


GAUSS_NEWTON = GGN()


class Running(nn.Module, ABC):
    r"""Ḡ, the running average of the curvature per datum, and samples of its Gaussian.

    .. math:: \bar G_t = \frac{1 - \gamma}{1 - \gamma^t} \sum_{s \le t} \gamma^{t - s} \frac{1}{B_s} G_s, \qquad
              \theta - \mu \sim \mathcal N\big(0, [c\, \bar G + \operatorname{diag}(\delta)]^{-1}\big)

    Args:
        model: The network in training; the curvature is taken in a copy of it.
        likelihood: p(y|f).
        structure: Structure of the curvature.
        memory: γ.
        kind: Kind of curvature.
        names: Names of the parameters; all that are trained by default.
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
        # frozen parameters are copied too: states are loaded into the copy
        self.network = Network(model, trainable(model) if names is None else names, frozen=())
        self._kind = kind
        self.copy = self.network.module.eval()  # as a submodule, so that it moves with this module
        self.structure, self.memory, self._likelihood = structure, memory, likelihood
        self._start: Observation | None = None

    def train(self, mode: bool = True) -> "Running":
        """Set the mode, except that of the copy: the curvature is that of the network in evaluation mode."""
        super().train(mode)
        self.copy.eval()
        return self

    def record(self, x: Inputs, y: Tensor) -> None:
        """Record the network's operations on the first batch."""
        if self._start is None:
            batch = moved(take(x, slice(2)), self.network.device), y[:2].to(self.network.device)
            self._start = observe(self.network, self._likelihood, self._kind, batch, None)

    @property
    def _recorded(self) -> Observation:
        if self._start is None:
            raise RuntimeError("the running curvature has no data yet: use osc.train(method, data).")
        return self._start

    def _empty(self, plan: Plan) -> Curvature:
        """An empty matrix on the present device of the network."""
        network = self.network
        return self.structure.zero(plan.specs, network.space, network.state_dtype, network.device)

    @torch.no_grad()
    def load_parameters(self, model: nn.Module, offset: Mapping[str, Tensor] | None = None) -> None:
        """Copy the parameters of the model, plus an offset if given, and its buffers into the copy."""
        copies = dict(self.copy.named_parameters())
        for name, parameter in model.named_parameters():
            if offset is None or name not in offset:
                copies[name].copy_(parameter)
            else:
                torch.add(parameter, offset[name], out=copies[name])
        for copied, buffer in zip(self.copy.buffers(), model.buffers(), strict=True):
            copied.copy_(buffer)

    @abstractmethod
    def add_batch(self, x: Inputs, y: Tensor, share: Share = WHOLE) -> None:
        """Add the curvature of a batch, or of those of all processes, at the parameters of the copy."""

    def _batch(self, x: Inputs, y: Tensor) -> Observation:
        return replace(self._recorded, batch=(moved(x, self.network.device), y.to(self.network.device)))

    @abstractmethod
    def of(self, num_data: int, plan: Plan) -> Curvature:
        """N Ḡ, for the blocks of a plan."""

    @abstractmethod
    def clear_cache(self) -> None:
        """Drop the cached Gaussian, because the average or the prior has changed."""

    @abstractmethod
    def coloured(self, white: Float[Tensor, "S P"], factor: float, prior: Prior) -> Float[Tensor, "S P"]:
        """Turn white noise, in place, into samples of the Gaussian with c and δ (δ as of the last `clear_cache`)."""

    @abstractmethod
    def variance(self, factor: float, prior: Prior) -> Float[Tensor, " P"]:
        """The variance of each parameter."""


class RunningDiagonal(Running):
    """The running average of a diagonal, held as one vector in the order of θ."""

    structure: Diag
    fisher: RunningFisher

    def record(self, x: Inputs, y: Tensor) -> None:
        if self._start is None:
            super().record(x, y)
            if self.structure.by_squares:  # these need no blocks, which take 8 bytes per entry
                self._start = replace(self._recorded, plan=replace(self._recorded.plan, blocks=()))
            network = self.network
            self.fisher = RunningFisher(network.space, self.memory, network.state_dtype, network.device)

    def add_batch(self, x: Inputs, y: Tensor, share: Share = WHOLE) -> None:
        diagonal = self.structure.diagonal(self._batch(x, y))
        share.sum_([diagonal])
        self.fisher.add_diagonal(diagonal, share.size(y))

    def shares_pass(self, model: nn.Module) -> bool:
        """Return True if :meth:`run_with_curvature` can be used with a model in its present mode.

        One squared backward pass suffices, training equals evaluation mode, and precision is full.
        """
        full = self.network.dtype == self.network.state_dtype
        return self.structure.by_squares and full and has_deterministic_layers(model)

    def run_with_curvature(
        self,
        forward: Callable[[], Tensor],
        batch: tuple[Inputs, Tensor],
        theta: Mapping[str, Tensor],
        share: Share = WHOLE,
    ) -> Tensor:
        """Run a forward pass of training, add its curvature to the average, and return the outputs.

        Args:
            forward: The forward pass, a function of the weights.
            batch: (x, y).
            theta: The weights.
            share: The share of this process.
        """
        observed = self._batch(*batch)
        diagonal = lambda f: output_diagonal(observed, f) / len(observed.y)  # noqa: E731
        f, squares = squared_pass(forward, theta, diagonal, ordinary_after=True)
        share.average_(squares.values())
        average = self.fisher.named
        for name, square in squares.items():
            average[name].lerp_(square, 1 - self.memory)
        self.fisher.count_term()
        return f

    def estimate_from(
        self, theta: Mapping[str, Tensor], noise: Float[Tensor, " P"], factor: float, scale: float, prior: Prior
    ) -> None:
        """Add the gradient of the next backward pass to the average (:meth:`RunningFisher.add_sampled_gradient`).

        Args:
            theta: θ, part of the graph.
            noise: θ − μ; the single backward pass overwrites it.
            factor: c.
            scale: Scale of the curvature behind the gradient, in units of the average.
            prior: Prior with the precisions δ.
        """
        self.fisher.normalise()
        ridged = self.fisher.ridged(factor, prior.vector(self.network.space).detach())
        offsets, sums = (self.network.space.unflatten(each) for each in (noise, ridged))
        average = self.fisher.named
        for name, tensor in theta.items():
            add = partial(self.fisher.add_sampled_gradient, average[name], offsets[name])
            tensor.register_hook(lambda g, add=add, ridged=sums[name]: add(g, ridged, factor, scale))
        self.fisher.clear_cache()  # the backward pass will change the average

    def of(self, num_data: int, plan: Plan) -> Curvature:
        return diagonal_curvature(self._empty(plan), self.fisher.average * num_data)

    def clear_cache(self) -> None:
        self.fisher.clear_cache()

    def _deviations(self, factor: float, prior: Prior) -> Float[Tensor, " P"]:
        return self.fisher.deviations(factor, prior.vector(self.network.space).detach())

    def coloured(self, white: Float[Tensor, "S P"], factor: float, prior: Prior) -> Float[Tensor, "S P"]:
        return white.mul_(self._deviations(factor, prior))

    def variance(self, factor: float, prior: Prior) -> Float[Tensor, " P"]:
        return self._deviations(factor, prior).square()


class RunningBlocks(Running):
    """The running average of any structure whose states can be added."""

    weight: Tensor

    def __init__(self, model: nn.Module, likelihood: Likelihood, structure: Structure, memory: float) -> None:
        super().__init__(model, likelihood, structure, memory)
        #: 1 − γ^t, the sum of the weights so far.
        self.register_buffer("weight", torch.zeros((), dtype=torch.double))
        self._precision: PosteriorPrecision | None = None

    def record(self, x: Inputs, y: Tensor) -> None:
        if self._start is None:
            super().record(x, y)
            for name, tensor in self._empty(self._recorded.plan).tensors().items():
                self.register_buffer(_buffer(name), tensor)

    def add_batch(self, x: Inputs, y: Tensor, share: Share = WHOLE) -> None:
        fresh = self._empty(self._recorded.plan)
        self.structure.add(fresh, self._batch(x, y))
        fresh.finish()
        sums = fresh.tensors()
        share.sum_(sums.values())
        for name, tensor in sums.items():
            self.get_buffer(_buffer(name)).mul_(self.memory).add_(tensor, alpha=(1 - self.memory) / share.size(y))
        self.weight.mul_(self.memory).add_(1 - self.memory)
        self.clear_cache()

    def of(self, num_data: int, plan: Plan) -> Curvature:
        empty, scale = self._empty(plan), num_data / float(self.weight)
        return empty.with_tensors({name: self.get_buffer(_buffer(name)) * scale for name in empty.tensors()})

    def clear_cache(self) -> None:
        self._precision = None

    def _gaussian(self, factor: float, prior: Prior) -> PosteriorPrecision:
        if self._precision is None:
            self._precision = self.of(1, self._recorded.plan).precision(factor, prior)
        return self._precision

    def coloured(self, white: Float[Tensor, "S P"], factor: float, prior: Prior) -> Float[Tensor, "S P"]:
        return self._gaussian(factor, prior).colour(white)

    def variance(self, factor: float, prior: Prior) -> Float[Tensor, " P"]:
        return self._gaussian(factor, prior).variance()


def _buffer(name: str) -> str:
    return "average_" + name.replace(".", "_")
