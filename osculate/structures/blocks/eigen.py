r"""A Kronecker block with corrected eigenvalues.

The eigenbasis is that of KFAC, U = U_B ⊗ U_A; the eigenvalues are the diagonal of Uᵀ G U itself,

.. math:: s_{oi} = \sum_n \sum_v \big( U_B^\top \, (J_n^\top s_{nv}) \, U_A \big)_{oi}^2,

instead of the products of the factors' eigenvalues. Of all matrices with this eigenbasis it is the closest to G in
the Frobenius norm, so never further from it than KFAC.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.forms import AnyForm, Outer
from osculate.structures.blocks.kronecker import KroneckerBlock

#: Entries of the rotated rows that are formed at once.
ENTRIES = 2**22


@dataclass(frozen=True, eq=False)
class EigenBlock(KroneckerBlock):
    """The factors, which give the basis, and the eigenvalues, from a second pass over the data.

    Attributes:
        corrected: the diagonal of G in the eigenbasis.
    """

    corrected: Float[Tensor, "G O I"]

    @classmethod
    def zero(cls, positions: Tensor, has_bias: bool, dtype: torch.dtype, device: torch.device) -> "EigenBlock":
        """No data yet."""
        plain = KroneckerBlock.zero(positions, has_bias, dtype, device)
        values = torch.zeros(positions.shape, dtype=dtype, device=device)
        return cls(plain.positions, plain.inputs, plain.outputs, plain.count, has_bias, values)

    def tensors(self) -> dict[str, Tensor]:
        return {**super().tensors(), "corrected": self.corrected}

    def with_tensors(self, tensors: dict[str, Tensor]) -> "EigenBlock":
        names = ("inputs", "outputs", "count", "corrected")
        inputs, outputs, count, corrected = (tensors[name] for name in names)
        return replace(self, inputs=inputs, outputs=outputs, count=count, corrected=corrected)

    def correct(self, form: AnyForm) -> None:
        """Add one batch to the eigenvalues, in the basis of the factors as they stand."""
        assert isinstance(form, Outer)
        if form.shared == 1:
            a, g = self.project(form, 1)
            self.corrected.add_(torch.einsum("ngo,ngi->goi", g.sum(0), a.square()))
            return
        inputs = form.a
        step = max(1, ENTRIES // (len(form.g) * self.corrected.numel()))
        for start in range(0, form.g.shape[1], step):
            part = slice(start, start + step)
            self.corrected.add_(self._rotated_matrices(inputs[part], form.g[:, part]).square().sum((0, 1)))

    @cached_property
    def _eigenvalues(self) -> Float[Tensor, "G O I"]:
        return self.corrected

    def dense(self) -> Float[Tensor, "p p"]:
        basis = [torch.kron(b, a) for b, a in zip(self._output_basis[1], self._input_basis[1], strict=True)]
        return torch.block_diag(*(u * s.reshape(-1) @ u.T for u, s in zip(basis, self.corrected, strict=True)))
