"""Kronecker factors for affine layers, with their own eigenvalues (KFAC) or corrected ones (EKFAC)."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from osculate.curvature.engine import Observation, Piece
from osculate.curvature.plan import BlockSpec
from osculate.registry import choose
from osculate.structures._base import Curvature, Structure, outputs_of
from osculate.structures.blocks import Block, DenseBlock, DiagonalBlock, KroneckerBlock, LookupBlock

#: Bytes for each entry of a matrix while it is decomposed: itself, eigenvectors and work space in double precision.
DECOMPOSITION = 32


@dataclass(frozen=True)
class Kron(Structure):
    """KFAC: weight and bias of an affine layer as one Kronecker product, see ``blocks/kronecker.py``.

    [martens2015] gives the factors of linear layers, [grosse2016] those of convolutions. The parameters of other layers
    (normalisation, slopes, the fallback) keep their exact dense block up to ``dense_limit`` parameters, and their exact
    diagonal above.

    Args:
        dense_limit: The largest block without Kronecker factors that is kept dense.
        sharing: Treatment of weights that are used at several positions of a datum (convolutions, layers of a
            transformer): with "expand" every position counts as a datum, which suits outputs at every position; with
            "reduce" the positions are taken together, their mean input with their summed output gradients, which suits
            outputs that pool them; "auto" takes for each layer the one closer to the exact block of the first data.
            [eschenhagen2023]
        largest: Number of inputs or outputs of a layer above which it keeps its exact diagonal in place of factors;
            None for factors of any size.

    Raises:
        ValueError: an unknown treatment, or a number that is not positive.
    """

    name: ClassVar[str] = "kron"
    smaller: ClassVar[str] = (
        "The two factors grow with the squares of a layer's inputs and outputs: use structure='diag' with "
        "curvature='fisher' (one backward pass a datum in place of one for each output),"
    )
    averages: ClassVar[bool] = True
    by_factors: ClassVar[bool] = True
    dense_limit: int = 1024
    sharing: str = field(default="expand", metadata={"later": True})
    largest: int | None = field(default=None, metadata={"later": True})

    def __post_init__(self) -> None:
        choose("sharing", self.sharing, KroneckerBlock.sharing)
        if self.largest is not None and self.largest < 1:
            raise ValueError(f"Kron needs a positive largest, or None, got {self.largest}.")

    def has_factors(self, spec: BlockSpec) -> bool:
        """True if parameters get Kronecker factors: those of an affine layer or a table that is not too large."""
        if spec.kind not in ("outer", "lookup"):
            return False
        _, outputs, inputs = spec.positions.shape
        return self.largest is None or (outputs if spec.kind == "lookup" else max(outputs, inputs)) <= self.largest

    def bytes_needed(self, specs: tuple[BlockSpec, ...], itemsize: int) -> int:
        """Both factors of each layer with their eigenvectors, and the decomposition of the largest."""
        state, largest = super().bytes_needed(specs, itemsize), 0
        for spec in specs:
            if self.has_factors(spec):
                groups, outputs, inputs = spec.positions.shape
                squares = [outputs**2] + [inputs**2] * (spec.kind == "outer")
                state += 2 * itemsize * groups * sum(squares)
                largest = max(largest, groups * max(squares))
        return state + DECOMPOSITION * largest

    def block(self, spec: BlockSpec, dtype: torch.dtype, device: torch.device) -> Block:
        """A Kronecker-factored block if the form has factors."""
        if not self.has_factors(spec):
            kind = DenseBlock if spec.size <= self.dense_limit else DiagonalBlock
            return kind.zero(spec.positions, dtype, device)
        if spec.kind == "outer":
            block = KroneckerBlock.zero(spec.positions, spec.has_bias, dtype, device)
            reduces = {"expand": 0, "reduce": 1, "auto": -1}[self.sharing]
            return replace(block, reduces=torch.tensor(reduces, dtype=torch.int))
        return LookupBlock.zero(spec.positions, False, dtype, device)


@dataclass(frozen=True)
class EKFAC(Kron):
    """KFAC's eigenbasis with the exact second moments along it, see ``blocks/kronecker.py``. [george2018]

    The data are read twice: for the factors, then for the eigenvalues. Two fits do not add, as each has a basis of its
    own.
    """

    name: ClassVar[str] = "ekfac"
    averages: ClassVar[bool] = False
    passes: ClassVar[int] = 2

    def block(self, spec: BlockSpec, dtype: torch.dtype, device: torch.device) -> Block:
        """A block with corrected eigenvalues if the form has factors."""
        block = super().block(spec, dtype, device)
        if not isinstance(block, KroneckerBlock):
            return block
        return replace(block, corrected=torch.zeros(spec.positions.shape, dtype=dtype, device=device))

    def add(self, curvature: Curvature, observation: Observation, pass_index: int = 0) -> Tensor:
        """The factors in the first pass, the eigenvalues in the second."""
        if pass_index == 0:
            return super().add(curvature, observation)

        def correct(piece: Piece) -> None:
            for block, form in zip(curvature.blocks, curvature.by_block(piece.forms), strict=True):
                if isinstance(block, KroneckerBlock) and form is not None:
                    block.correct(form)

        return outputs_of(observation.pieces(), correct)
