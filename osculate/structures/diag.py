"""The diagonal of the matrix."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from osculate.curvature.columns import Hessian
from osculate.curvature.engine import Block as BlockSpec
from osculate.curvature.observation import Observation
from osculate.structures._base import Curvature, Structure
from osculate.structures.blocks import Block, DiagonalBlock
from osculate.structures.hessian import add_hessian


@dataclass(frozen=True)
class Diag(Structure):
    """The exact diagonal of G: P memory, any prior."""

    name: ClassVar[str] = "diag"
    entrywise: ClassVar[bool] = True

    def block(self, spec: BlockSpec, dtype: torch.dtype, device: torch.device) -> Block:
        """A diagonal block."""
        return DiagonalBlock.zero(spec.positions, dtype, device)

    def add(self, curvature: Curvature, observation: Observation, number: int = 0) -> Tensor:
        """The columns of the batch, or its whole Hessian."""
        if isinstance(observation.kind, Hessian):
            return add_hessian(curvature, observation)
        return super().add(curvature, observation, number)
