r"""The linear model around the network.

.. math:: h(\theta, x) = f(\tilde\theta, x) + J(x) (\theta - \tilde\theta), \qquad
          \theta_* = \operatorname{argmin}_\theta\; -\tfrac1T \sum_n \log p(y_n \mid h(\theta, x_n))
                     + \tfrac12 \lVert \theta \rVert_\Lambda^2

A network that was stopped early, or whose weights are normalised, is at no mode of its own posterior, and the norm of
its weights says little about their prior. The linear model, which predictions are made with, is convex in θ and has
exactly one mode for each prior. [antoran2022]
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.batches import Data, as_batches
from osculate.curvature.linearisation import Linearisation
from osculate.curvature.products import activations, output_hessian
from osculate.inputs import Inputs, count, floating, moved, take
from osculate.memory import budget, even_parts, require
from osculate.posteriors import Gaussian
from osculate.streams import RowStream

#: Copies of its activations that the graphs of a linearised network hold.
COPIES = 6


@dataclass(frozen=True, eq=False)
class Place:
    """A point θ in parameter space.

    Attributes:
        theta: θ.
        outputs: h(θ, x) of each part of the data.
    """

    theta: Float[Tensor, " P"]
    outputs: tuple[Float[Tensor, "_ *C"], ...]

    def moved(self, length: float, direction: Float[Tensor, " P"], change: list[Tensor]) -> "Place":
        """The point at some length along a direction d, of which ``change`` is J d."""
        outputs = tuple(h + length * d for h, d in zip(self.outputs, change, strict=True))
        return Place(self.theta + length * direction, outputs)


class LinearModel:
    """The network linearised at the mode of a posterior, and the data it was fitted to.

    Products with J reuse the recorded passes if these fit into memory, and repeat them if not.

    Args:
        q: A posterior; its network is the linearisation point θ̃.
        data: The data that it was fitted to; None for a structure that keeps them ("matrix_free").
        memory: Bytes for recorded passes, None for what the fit was allowed to take, by default up to 1 GiB.

    Raises:
        ValueError: neither the call nor the posterior has data, they are not those of the fit, or they are a stream
            that does not fit into memory.
    """

    def __init__(self, q: Gaussian, data: Data | None, memory: int | None = None) -> None:
        self.network, self.mask = q.network.in_state_precision(), q.structure.covered.to(q.network.device)
        self._whole, self.processes = bool(self.mask.all()), q.processes
        device, dtype = self.network.device, self.network.dtype
        if isinstance(found := q.data if data is None else data, RowStream):
            require(
                found.num_bytes,
                device,
                "the rows of a stream, which the linear model holds,",
                'Use the network instead (mode="network"), or fit fewer rows.',
            )
        batches = [(floating(moved(x, device), dtype), y.to(device)) for x, y in data_of(q, data)]
        total = sum(len(y) for _, y in batches)
        require_all(total, q)
        self._some = first = batches[0][0] if batches else floating(rows_for_shapes(q)[0], dtype)
        each = COPIES * activations(self.network, first)
        room = budget(q.memory if memory is None else memory, self.network.device, total * each)
        self.parts = [
            (take(x, part), y[part]) for x, y in batches for part in even_parts(count(x), max(1, room // each))
        ]
        self._kept = [Linearisation(self.network, x) for x, _ in self.parts] if total * each <= room else None

    def _passes(self) -> Iterable[Linearisation]:
        return (Linearisation(self.network, x) for x, _ in self.parts) if self._kept is None else self._kept

    @cached_property
    def no_outputs(self) -> Float[Tensor, "0 *C"]:
        """The outputs of no data."""
        return Linearisation(self.network, take(self._some, slice(1))).f[:0]

    def covered(self, v: Float[Tensor, "*S P"]) -> Float[Tensor, "*S P"]:
        """v, with zeros for parameters outside the posterior."""
        return v if self._whole else v * self.mask

    def place(self, theta: Float[Tensor, " P"] | None = None) -> Place:
        """A point θ, by default θ̃. Cost: one pass over the data."""
        mean = self.network.mean
        if theta is None:
            return Place(mean, tuple(at.f for at in self._passes()))
        offset = self.covered(theta.to(mean) - mean)
        if not offset.any():
            return self.place()
        return Place(mean + offset, tuple(at.f + at.jvp(offset.unsqueeze(0))[0] for at in self._passes()))

    def directional(self, v: Float[Tensor, " P"]) -> list[Float[Tensor, "_ *C"]]:
        """J v, part by part."""
        return [at.jvp(v.unsqueeze(0))[0] for at in self._passes()]

    def transposed(self, u: list[Tensor]) -> Float[Tensor, " P"]:
        """Jᵀ u of a column given part by part."""
        parts = (at.vjp(column.unsqueeze(0))[0] for at, column in zip(self._passes(), u, strict=True))
        zero = torch.zeros_like(self.network.mean)
        return self.covered(self.processes.summed(reduce(torch.add, parts, zero)))

    def pushed(self, v: Float[Tensor, "S P"]) -> Float[Tensor, "S K"]:
        """J v for several v, all outputs of all data side by side."""
        return torch.cat([at.jvp(v).flatten(1) for at in self._passes()], 1)

    def pulled(self, u: Float[Tensor, "S K"]) -> Float[Tensor, "S P"]:
        """Jᵀ u for several u."""
        shapes = [at.f.shape for at in self._passes()]
        parts = zip(u.split([shape.numel() for shape in shapes], 1), shapes, self._passes(), strict=True)
        return self.covered(reduce(torch.add, (at.vjp(part.reshape(-1, *shape)) for part, shape, at in parts)))

    def curvature(self, q: Gaussian, place: Place) -> Callable[[Tensor], Tensor]:
        """v (S, P) to (Jᵀ A J / T + Λ) v with the output Hessians A at h(θ)."""
        maps = [output_hessian(q.likelihood, h, y) for h, (_, y) in zip(place.outputs, self.parts, strict=True)]

        def product(v: Float[Tensor, "S P"]) -> Float[Tensor, "S P"]:
            total = torch.zeros_like(v)
            for at, through in zip(self._passes(), maps, strict=True):
                total += at.vjp(through(at.jvp(v)))
            return self.covered(self.processes.summed(total) / q.temperature) + self.prior(q, v)

        return product

    def prior(self, q: Gaussian, v: Float[Tensor, "*S P"]) -> Float[Tensor, "*S P"]:
        """Σ⁻¹ v with the precision Σ⁻¹ of the prior."""
        with torch.no_grad():
            return q.prior.multiply(v, self.network.space)

    def scores(self, q: Gaussian, outputs: list[Tensor] | tuple[Tensor, ...]) -> list[Float[Tensor, "_ *C"]]:
        """−∂ log p / ∂h / T, part by part."""
        return [-q.likelihood.score(h, y) / q.temperature for h, (_, y) in zip(outputs, self.parts, strict=True)]

    def gradient(self, q: Gaussian, place: Place) -> Float[Tensor, " P"]:
        """The gradient of the objective."""
        apart = self.covered(q.prior.apart(place.theta))
        return self.transposed(self.scores(q, place.outputs)) + self.covered(self.prior(q, apart))

    def statistics(self, q: Gaussian, place: Place) -> dict[str, Tensor]:
        """The sums from which the log likelihood of the linear model follows."""
        return summed_statistics(q, zip(place.outputs, (y for _, y in self.parts), strict=True))


def summed_statistics(q: Gaussian, data: Iterable[tuple[Float[Tensor, "_ *C"], Tensor]]) -> dict[str, Tensor]:
    """The statistics of the likelihood, summed over batches of outputs and targets, and over all processes."""
    alone = q.processes.alone
    found = {} if alone else {name: torch.zeros_like(value) for name, value in q.fit.statistics.items()}
    for h, y in data:
        for name, value in q.likelihood.statistics(h, y.to(h.device)).items():
            found[name] = found.get(name, torch.zeros_like(value)) + value
    return found if alone else {name: q.processes.summed(value) for name, value in found.items()}


def require_all(total: int, q: Gaussian) -> None:
    """Raise ValueError if the number of data differs from that of the fit.

    Raises:
        ValueError: there are more or fewer data.
    """
    if not q.processes.alone:
        total = sum(q.processes.gather(total))
    if total != q.num_data:
        raise ValueError(
            f"the linear model needs the data that the posterior was fitted to: it had {q.num_data:,}, and there "
            f"are {total:,} here."
        )


def data_of(q: Gaussian, data: Data | None) -> Iterator[tuple[Inputs, Tensor]]:
    """The batches of the data: those given, those that a structure keeps, or those of the fit.

    Raises:
        ValueError: there are no data.
    """
    data = q.data if data is None else data
    if data is None and (kept := q.structure.kept):
        return iter(kept)
    if data is None:
        raise ValueError(
            "the mode of the linear model depends on the data, which a posterior from a file, or one fitted to an "
            "iterator, does not have: pass data=, the data that it was fitted to."
        )
    return as_batches(data, may_be_empty=not q.processes.alone)


def rows_for_shapes(q: Gaussian) -> tuple[Inputs, Tensor]:
    """Some data for the shapes of inputs and targets, in a process whose share is empty."""
    assert q.first_data is not None
    x, y = q.first_data
    return moved(x, q.network.device), y.to(q.network.device)
