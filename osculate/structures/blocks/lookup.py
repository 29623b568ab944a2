r"""Kronecker blocks of an embedding, whose input factor is diagonal.

The inputs of a lookup are one-hot vectors, so that Σ a aᵀ is the diagonal matrix of how often each row of the table was
picked: its own eigenbasis, held as a vector. A vocabulary of V costs V numbers instead of V², and no eigendecomposition
but that of the output factor.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.forms import AnyForm, Dense, Form, Lookup
from osculate.linalg import mirror
from osculate.structures.blocks._base import Delta, Picked
from osculate.structures.blocks.eigen import EigenBlock
from osculate.structures.blocks.kronecker import KroneckerBlock, KroneckerPrecision


@dataclass(frozen=True, eq=False)
class LookupBlock(KroneckerBlock):
    """The counts of the rows, and the sum of the output factor.

    Attributes:
        inputs: the diagonal of Σ a aᵀ, (1, I).
    """

    inputs: Float[Tensor, "1 I"]

    @classmethod
    def zero(cls, positions: Tensor, has_bias: bool, dtype: torch.dtype, device: torch.device) -> "LookupBlock":
        """No data yet; ``positions`` is (1, O, I)."""
        _, o, i = positions.shape
        like = torch.zeros((), dtype=dtype, device=device)
        flat = positions.reshape(-1).to(device)
        return cls(flat, like.new_zeros(1, i), like.new_zeros(1, o, o), like, has_bias)

    def accumulate(self, form: Form) -> None:
        assert isinstance(form, Lookup)
        if form.fresh:
            self.inputs[0].add_(form.counts())
            self.count.add_(form.events)
        super().accumulate(replace(form, fresh=False))

    def finish(self) -> None:
        mirror(self.outputs)

    @cached_property
    def _eigenvalues(self) -> Float[Tensor, "1 O I"]:
        return self._output_basis[0].unsqueeze(-1) * (self.inputs / self.count.clamp(min=1)).unsqueeze(-2)

    def rotate(self, v: Float[Tensor, "*S 1 O I"]) -> Float[Tensor, "*S 1 O I"]:
        return self._output_basis[1].mT @ v

    def rotate_back(self, v: Float[Tensor, "*S 1 O I"]) -> Float[Tensor, "*S 1 O I"]:
        return self._output_basis[1] @ v

    def project(self, form: AnyForm, events: int) -> Any:
        if not isinstance(form, Lookup):
            return super().project(Dense(form.rows()), events)
        numbers, g = form.merged()
        return Picked.of(numbers, g @ self._output_basis[1][0], events)

    def precision(self, scale: Float[Tensor, ""] | float, delta: Delta) -> "LookupPrecision":
        plain = super().precision(scale, delta)
        return LookupPrecision(plain.block, plain.signal, plain.weight, plain.bias)

    def dense(self) -> Float[Tensor, "p p"]:
        return torch.kron(self.outputs[0], (self.inputs[0] / self.count.clamp(min=1)).diag())


@dataclass(frozen=True, eq=False)
class EigenLookupBlock(EigenBlock, LookupBlock):
    """The same with corrected eigenvalues: the diagonal of the block in the basis of the output factor."""

    inputs: Float[Tensor, "1 I"]

    @classmethod
    def zero(cls, positions: Tensor, has_bias: bool, dtype: torch.dtype, device: torch.device) -> "EigenLookupBlock":
        """No data yet; ``positions`` is (1, O, I)."""
        plain = LookupBlock.zero(positions, has_bias, dtype, device)
        values = torch.zeros(positions.shape, dtype=dtype, device=device)
        return cls(plain.positions, plain.inputs, plain.outputs, plain.count, has_bias, values)

    def correct(self, form: AnyForm) -> None:
        self.project(form, 1).add_squares(self.corrected[0])

    def dense(self) -> Float[Tensor, "p p"]:
        basis = torch.kron(self._output_basis[1][0].contiguous(), torch.eye(self.inputs.shape[-1]).to(self.inputs))
        return basis * self.corrected.reshape(-1) @ basis.T


@dataclass(frozen=True, eq=False)
class LookupPrecision(KroneckerPrecision):
    """The precision of a lookup: the eigenbasis is that of the output factor."""

    def variance(self) -> Float[Tensor, " p"]:
        return (self.block._output_basis[1].square() @ self._inverse).reshape(-1)

    def contract(self, projected: Any, events: int) -> Float[Tensor, "N T E E"]:
        if isinstance(projected, Picked):
            return projected.grams(self._inverse[0], events)
        return super().contract(projected, events)
