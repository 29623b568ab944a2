"""One batch as a symmetric matrix that can be multiplied with vectors any number of times."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.columns import GGN, Columns, Hessian
from osculate.curvature.engine import Observation
from osculate.curvature.linearisation import Linearisation
from osculate.curvature.products import (
    OutputMap,
    columns_product,
    gauss_newton_product,
    hessian_product,
    output_hessian,
    portions,
)
from osculate.inputs import apply, take
from osculate.likelihoods import drawn_on
from osculate.parameters import Network


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch with the outputs and columns that all of its products share.

    Attributes:
        observation: the batch, with the network and the kind of curvature.
        f: outputs, detached.
        columns: the columns of a curvature that has few of them; random ones are drawn once.
    """

    observation: Observation
    f: Float[Tensor, "N *C"]
    columns: Float[Tensor, "V N *C"] | None

    @classmethod
    def of(cls, observation: Observation) -> "Batch":
        """The batch, with its columns drawn. Cost: one forward pass."""
        o = observation
        with torch.no_grad():
            f = o.network(o.x).to(o.network.state_dtype)
        o.check(f, o.y)
        if isinstance(o.kind, GGN | Hessian):
            return cls(o, f, None)
        columns = o.kind.columns(o.likelihood, f, o.y)
        return cls(o, f, columns.part(0, columns.count))

    def product(self, v: Float[Tensor, "S P"]) -> Float[Tensor, "S P"]:
        """This batch's part of G v."""
        o = self.observation
        if isinstance(o.kind, Hessian):
            return hessian_product(o.network, o.likelihood, o.x, o.y, v, o.memory)
        return gauss_newton_product(o.network, o.x, v, self._output_map, o.memory)

    def at(self, part: Tensor) -> tuple[Linearisation, OutputMap]:
        """The network around its mode for some of the data, by number, and u -> Λ u for their outputs."""
        at = Linearisation(self.network, take(self.observation.x, part))
        return at, self._output_map(at.f, part)

    def _output_map(self, f: Float[Tensor, "n *C"], part: slice | Tensor) -> OutputMap:
        o = self.observation
        if self.columns is None:
            return output_hessian(o.likelihood, f, o.y[part])
        return columns_product(Columns.of(self.columns[:, part]), o.memory)

    def noise(self, count: int, generator: torch.Generator | None) -> Float[Tensor, "S P"]:
        """Draws from N(0, G) for this batch's part of G: Σ_n J_nᵀ Σ_v s_nv ε_nv with white ε."""
        o, device = self.observation, drawn_on(self.f, generator)

        def white(shape: Sequence[int]) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=self.f.dtype, device=device).to(self.f.device)

        vectors, data = portions(o.network, o.x, count, o.memory)
        total = self.f.new_zeros(count, o.network.space.size)
        for part in data:
            at = Linearisation(o.network, take(o.x, part))
            for chunk in vectors:
                size = chunk.stop - chunk.start
                if self.columns is None:
                    u = o.likelihood.combined_columns(at.f, o.y[part], size, white)
                else:
                    s = self.columns[:, part].flatten(2)
                    u = torch.einsum("svn,vnc->snc", white((size, *s.shape[:2])), s).reshape(-1, *at.f.shape)
                total[chunk] += at.vjp(u)
        return total

    @property
    def network(self) -> Network:
        """The network at its mode."""
        return self.observation.network

    def to(self, network: Network) -> "Batch":
        """The same batch for the network on another device or in another floating type."""

        def moved(tensor: Tensor) -> Tensor:
            return tensor.to(network.device, network.dtype if tensor.is_floating_point() else tensor.dtype)

        there = replace(
            self.observation,
            network=network,
            batch=(apply(moved, self.observation.x), moved(self.observation.y)),
        )
        return Batch(there, moved(self.f), None if self.columns is None else moved(self.columns))
