"""Kronecker factors with corrected eigenvalues (EKFAC)."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from osculate.curvature.engine import Observation, Piece
from osculate.curvature.plan import BlockSpec
from osculate.structures._base import Curvature, outputs_of
from osculate.structures.blocks import Block, KroneckerBlock
from osculate.structures.kron import Kron


@dataclass(frozen=True)
class EKFAC(Kron):
    """KFAC's eigenbasis with the exact second moments along it, see ``blocks/kronecker.py``. [george2018]

    The data are read twice: for the factors, then for the eigenvalues. The eigenvalues belong to the basis of all
    data, so that two fits do not add.
    """

    name: ClassVar[str] = "ekfac"
    averages: ClassVar[bool] = False
    passes: ClassVar[int] = 2

    def block(self, spec: BlockSpec, dtype: torch.dtype, device: torch.device) -> Block:
        """Corrected eigenvalues where the form has factors."""
        block = super().block(spec, dtype, device)
        if not isinstance(block, KroneckerBlock):
            return block
        return replace(block, corrected=torch.zeros(spec.positions.shape, dtype=dtype, device=device))

    def add(self, curvature: Curvature, observation: Observation, number: int = 0) -> Tensor:
        """The factors in the first pass, the eigenvalues in the second."""
        if number == 0:
            return super().add(curvature, observation)

        def correct(piece: Piece) -> None:
            for block, form in zip(curvature.blocks, curvature.by_block(piece.forms), strict=True):
                if isinstance(block, KroneckerBlock) and form is not None:
                    block.correct(form)

        return outputs_of(observation.pieces(), correct)
