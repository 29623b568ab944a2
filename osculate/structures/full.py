"""Every entry of the whole matrix, for small networks, or of one dense block per layer."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from osculate.curvature.plan import BlockSpec
from osculate.memory import free, readable
from osculate.structures._base import Structure
from osculate.structures.blocks import Block, DenseBlock


@dataclass(frozen=True)
class Full(Structure):
    """Every entry of G: exact, P² memory, one Cholesky factorisation P³ for each prior.

    Args:
        limit: Largest P that is accepted, as memory grows with P².
    """

    name: ClassVar[str] = "full"
    joint: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    entrywise: ClassVar[bool] = True
    takes_correlations: ClassVar[bool] = True
    limit: int = 20_000

    def block(self, spec: BlockSpec, dtype: torch.dtype, device: torch.device) -> Block:
        """One dense block."""
        return DenseBlock.zero(spec.positions, dtype, device)

    def bytes_needed(self, specs: tuple[BlockSpec, ...], itemsize: int) -> int:
        """The matrix, its rescaled copy and the factor, in double precision."""
        return 24 * sum(spec.size for spec in specs) ** 2

    def require_room(self, specs: tuple[BlockSpec, ...], dtype: torch.dtype, device: torch.device) -> None:
        size = sum(spec.size for spec in specs)
        if size > self.limit:
            gigabytes = self.bytes_needed(specs, dtype.itemsize) / 1e9
            raise ValueError(
                f"structure='full' on {size:,} parameters needs about {gigabytes:,.0f} GB of memory and "
                f"{size**3 / 3e12:,.0f} teraflops for each factorisation (limit: {self.limit:,} parameters). "
                "Use structure='kron' (the default) or 'diag' (with curvature='fisher' for very many outputs), or "
                "subset='last_layer'; to fit it all the same, pass "
                f"structure=osc.structures.Full(limit={size})."
            )


@dataclass(frozen=True)
class BlockDiagonal(Structure):
    """Every entry within a layer (weight and bias together), none between layers: Σ p² memory over the blocks.

    Args:
        limit: Size of the largest block that is accepted.
    """

    name: ClassVar[str] = "block"
    averages: ClassVar[bool] = True
    entrywise: ClassVar[bool] = True
    limit: int = 10_000

    def block(self, spec: BlockSpec, dtype: torch.dtype, device: torch.device) -> Block:
        """A dense block."""
        return DenseBlock.zero(spec.positions, dtype, device)

    def bytes_needed(self, specs: tuple[BlockSpec, ...], itemsize: int) -> int:
        """The matrices, and a copy and a factor of the largest in double precision."""
        return sum(s.size**2 for s in specs) * itemsize + 16 * max(s.size for s in specs) ** 2

    def require_room(self, specs: tuple[BlockSpec, ...], dtype: torch.dtype, device: torch.device) -> None:
        large = [spec for spec in specs if spec.size > self.limit]
        bytes_needed = self.bytes_needed(specs, dtype.itemsize)
        if large or bytes_needed > free(device):
            worst = max(specs, key=lambda spec: spec.size)
            raise ValueError(
                f"structure='block' needs about {readable(bytes_needed)}; its largest block, {', '.join(worst.names)}, "
                f"has {worst.size:,} parameters (limit: {self.limit:,}), and {readable(free(device))} are free. Use "
                f"structure='kron' or 'diag' (with curvature='fisher' for very many outputs), or a subset; to raise "
                f"the limit, pass structure=osc.structures.BlockDiagonal(limit={worst.size})."
            )
