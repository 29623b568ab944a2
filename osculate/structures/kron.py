"""Kronecker factors for affine layers (KFAC), dense or diagonal blocks for the rest."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from osculate.curvature.plan import BlockSpec
from osculate.structures._base import Structure
from osculate.structures.blocks import Block, DenseBlock, DiagonalBlock, KroneckerBlock, LookupBlock


@dataclass(frozen=True)
class Kron(Structure):
    """KFAC: weight and bias of an affine layer as one Kronecker product, see ``blocks/kronecker.py``.

    [martens2015] gives the factors of linear layers, [grosse2016] those of convolutions ("expand": every position
    counts as a datum). The parameters of other layers (normalisation, slopes, the fallback) keep their exact dense
    block up to ``dense_limit`` parameters, and their exact diagonal above.

    Args:
        dense_limit: the largest block without Kronecker factors that is kept dense.
    """

    name: ClassVar[str] = "kron"
    averages: ClassVar[bool] = True
    by_factors: ClassVar[bool] = True
    dense_limit: int = 1024

    def block(self, spec: BlockSpec, dtype: torch.dtype, device: torch.device) -> Block:
        """Kronecker where the form has factors."""
        if spec.kind == "outer":
            return KroneckerBlock.zero(spec.positions, spec.has_bias, dtype, device)
        if spec.kind == "lookup":
            return LookupBlock.zero(spec.positions, False, dtype, device)
        kind = DenseBlock if spec.size <= self.dense_limit else DiagonalBlock
        return kind.zero(spec.positions, dtype, device)
