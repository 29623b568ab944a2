"""A block that keeps every entry."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.forms import Form
from osculate.linalg import add_gram, cholesky, eigh, mirror
from osculate.structures.blocks._base import Block, Delta, Precision


@dataclass(frozen=True, eq=False)
class DenseBlock(Block):
    r"""Σ_n Σ_v (J_nᵀ s_nv)(J_nᵀ s_nv)ᵀ: O(p²) memory, one Cholesky factorisation O(p³) for each prior.

    Always in double precision: the error of a sum in single precision, 1e-7 of its largest eigenvalue, may exceed the
    precision of a vague prior.
    """

    state: ClassVar[tuple[str, ...]] = ("matrix",)
    whole_rows: ClassVar[bool] = True
    positions: Tensor
    matrix: Float[Tensor, "p p"]

    @classmethod
    def zero(cls, positions: Tensor, dtype: torch.dtype, device: torch.device) -> "DenseBlock":
        """An empty block, before any data."""
        flat = positions.reshape(-1).to(device)
        return cls(flat, torch.zeros(len(flat), len(flat), dtype=torch.double, device=device))

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> "DenseBlock":
        return replace(self, matrix=tensors["matrix"].double())

    def accumulate(self, form: Form) -> None:
        add_gram(self.matrix.unsqueeze(0), form.rows().flatten(0, 1).double().unsqueeze(0))

    def finish(self) -> None:
        mirror(self.matrix.unsqueeze(0))

    def sensitivity(self) -> Float[Tensor, " p"]:
        return self.matrix.detach().diagonal().abs().sqrt()

    def precision(self, scale: Float[Tensor, ""] | float, delta: Delta) -> "DensePrecision":
        size = delta.vector.double().to(self.matrix.device).sqrt()
        eye = torch.eye(len(size), dtype=size.dtype, device=size.device)
        prior = eye if delta.correlated is None else delta.multiply(eye) / size / size.unsqueeze(1)
        matrix = scale * self.matrix / size / size.unsqueeze(1) + prior
        factor, info = torch.linalg.cholesky_ex(matrix)
        if bool(info) or not bool(factor.diagonal().isfinite().all()):  # rounding exceeds a vague prior
            factor = cholesky(scale * self._clamped / size / size.unsqueeze(1) + prior)
        return DensePrecision(factor, size, None if delta.correlated is None else prior)

    @cached_property
    def _clamped(self) -> Float[Tensor, "p p"]:
        """The matrix without its negative eigenvalues, which are due to rows in single precision."""
        values, vectors = eigh(self.matrix)
        return vectors * values @ vectors.T

    def dense(self) -> Float[Tensor, "p p"]:
        return self.matrix


@dataclass(frozen=True, eq=False)
class DensePrecision(Precision):
    """Λ = δ^{1/2} B δ^{1/2} with B = δ^{-1/2} (Σ⁻¹ + scale · G) δ^{-1/2} = L Lᵀ, in double precision.

    Attributes:
        relative: L.
        size: δ^{1/2}.
        prior: δ^{-1/2} Σ⁻¹ δ^{-1/2}, None if it is I.
    """

    relative: Float[Tensor, "p p"]
    size: Float[Tensor, " p"]
    prior: Float[Tensor, "p p"] | None = None

    @cached_property
    def factor(self) -> Float[Tensor, "p p"]:
        """The lower Cholesky factor of Λ."""
        return self.size.unsqueeze(1) * self.relative

    def log_det_ratio(self) -> Float[Tensor, ""]:
        return 2 * self.relative.diagonal().log().sum()

    def effective_parameters(self) -> Float[Tensor, " p"]:
        inverse = torch.cholesky_inverse(self.relative)
        return 1 - (inverse.diagonal() if self.prior is None else (inverse * self.prior).sum(1))

    def multiply(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return (v.double() @ self.factor @ self.factor.T).to(v.dtype)

    def solve(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return torch.cholesky_solve(v.double().T, self.factor).T.to(v.dtype)

    def colour(self, z: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return torch.linalg.solve_triangular(self.factor.T, z.double().T, upper=True).T.to(z.dtype)

    def whiten(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return torch.linalg.solve_triangular(self.factor, v.double().T, upper=False).T.to(v.dtype)

    def variance(self) -> Float[Tensor, " p"]:
        return torch.cholesky_inverse(self.factor).diagonal()
