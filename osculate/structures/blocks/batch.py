"""One batch as a symmetric matrix that can be multiplied with vectors, as often as they like."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.columns import GGN, Columns, Hessian
from osculate.curvature.observation import Observation
from osculate.curvature.products import (
    OutputMap,
    columns_product,
    gauss_newton_product,
    ggn_product,
    hessian_product,
)
from osculate.inputs import apply
from osculate.parameters import Network


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch, and what its products must have in common.

    Attributes:
        observation: the batch, with the network and the kind of curvature.
        f: outputs, detached.
        columns: those of a kind that is made of few columns; random ones are drawn once.
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
        o, columns = self.observation, self.columns
        if columns is None:
            product = hessian_product if isinstance(o.kind, Hessian) else ggn_product
            return product(o.network, o.likelihood, o.x, o.y, v, o.memory)

        def through(_: Tensor, part: slice) -> OutputMap:
            return columns_product(Columns.of(columns[:, part]), o.memory)

        return gauss_newton_product(o.network, o.x, v, through, o.memory)

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
