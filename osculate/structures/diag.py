"""The diagonal of the matrix."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from osculate.curvature.plan import BlockSpec
from osculate.structures._base import Structure
from osculate.structures.blocks import Block, DiagonalBlock


@dataclass(frozen=True)
class Diag(Structure):
    """The exact diagonal of G: P memory, any prior."""

    name: ClassVar[str] = "diag"
    entrywise: ClassVar[bool] = True
    by_factors: ClassVar[bool] = True

    def block(self, spec: BlockSpec, dtype: torch.dtype, device: torch.device) -> Block:
        """A diagonal block."""
        return DiagonalBlock.zero(spec.positions, dtype, device)
