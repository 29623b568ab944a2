"""The diagonal of the matrix."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.engine import Observation
from osculate.curvature.plan import BlockSpec
from osculate.structures._base import Structure
from osculate.structures.blocks import Block, DiagonalBlock


@dataclass(frozen=True)
class Diag(Structure):
    """The exact diagonal of G: P memory, any prior."""

    name: ClassVar[str] = "diag"
    entrywise: ClassVar[bool] = True
    by_factors: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    smaller: ClassVar[str] = "Use subset='last_layer',"

    def diagonal(self, observation: Observation) -> Float[Tensor, " P"]:
        """The diagonal of one batch, in the order of θ."""
        network = observation.network
        curvature = self.zero(observation.plan.specs, network.space, network.state_dtype, network.device)
        self.add(curvature, observation)
        result = torch.zeros(network.space.size, dtype=network.state_dtype, device=network.device)
        for block in curvature.blocks:
            assert isinstance(block, DiagonalBlock)
            result[block.positions] = block.values
        return result

    def block(self, spec: BlockSpec, dtype: torch.dtype, device: torch.device) -> Block:
        """A diagonal block."""
        return DiagonalBlock.zero(spec.positions, dtype, device)
