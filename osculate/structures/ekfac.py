"""Kronecker factors with corrected eigenvalues (EKFAC)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from osculate.curvature.engine import Observation
from osculate.curvature.plan import BlockSpec
from osculate.structures._base import Curvature
from osculate.structures.blocks import Block, EigenBlock, EigenLookupBlock
from osculate.structures.kron import Kron


@dataclass(frozen=True)
class EKFAC(Kron):
    """KFAC's eigenbasis with the exact second moments along it, see ``blocks/eigen.py``. [george2018]

    The data are read twice: for the factors, then for the eigenvalues. The eigenvalues belong to the basis of all
    data, so that two fits do not add.
    """

    name: ClassVar[str] = "ekfac"
    averages: ClassVar[bool] = False
    passes: ClassVar[int] = 2

    def block(self, spec: BlockSpec, dtype: torch.dtype, device: torch.device) -> Block:
        """Corrected eigenvalues where the form has factors."""
        if spec.kind == "outer":
            return EigenBlock.zero(spec.positions, spec.has_bias, dtype, device)
        if spec.kind == "lookup":
            return EigenLookupBlock.zero(spec.positions, False, dtype, device)
        return super().block(spec, dtype, device)

    def add(self, curvature: Curvature, observation: Observation, number: int = 0) -> Tensor:
        """The factors in the first pass, the eigenvalues in the second."""
        if number == 0:
            return super().add(curvature, observation)
        outputs = []
        for piece in observation.pieces():
            for block, (spec,) in zip(curvature.blocks, curvature.groups, strict=True):
                if isinstance(block, EigenBlock) and spec in piece.forms:
                    block.correct(piece.forms[spec])
            if piece.first:
                outputs.append(piece.f)
        return torch.cat(outputs)
