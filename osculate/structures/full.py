"""The whole matrix, for small networks."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from osculate.curvature.plan import BlockSpec
from osculate.parameters import ParameterSpace
from osculate.structures._base import Curvature, Structure
from osculate.structures.blocks import Block, DenseBlock


@dataclass(frozen=True)
class Full(Structure):
    """Every entry of G: exact, P² memory, one Cholesky factorisation P³ for each prior.

    Args:
        limit: the largest P that is accepted; above it the memory would be surprising.
    """

    name: ClassVar[str] = "full"
    joint: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    entrywise: ClassVar[bool] = True
    limit: int = 20_000

    def block(self, spec: BlockSpec, dtype: torch.dtype, device: torch.device) -> Block:
        """One dense block."""
        return DenseBlock.zero(spec.positions, dtype, device)

    def zero(
        self, specs: tuple[BlockSpec, ...], space: ParameterSpace, dtype: torch.dtype, device: torch.device
    ) -> Curvature:
        size = sum(spec.size for spec in specs)
        if size > self.limit:
            gigabytes = 24 * size**2 / 1e9  # the matrix, what is factorised and the factor
            raise ValueError(
                f"structure='full' on {size:,} parameters needs about {gigabytes:,.0f} GB of memory and "
                f"{size**3 / 3e12:,.0f} teraflops for each factorisation (limit: {self.limit:,} parameters). "
                "Use structure='kron' (the default) or 'diag', or subset='last_layer'; "
                f"osc.structures.Full(limit={size}) insists."
            )
        return super().zero(specs, space, dtype, device)
