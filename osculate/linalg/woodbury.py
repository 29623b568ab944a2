"""A diagonal plus a matrix of low rank, inverted at the cost of the low rank."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.linalg.low_rank import combine, inner
from osculate.linalg.psd import cholesky, damped, damping, eigh


@dataclass(frozen=True, eq=False)
class DiagonalPlusLowRank:
    r"""Λ = D + FᵀF with D = diag(d) positive and a factor F of k rows: k × n memory, k² n operations once.

    With X = F D^{-1/2} and I + X Xᵀ = L Lᵀ (k × k, in double precision),

    .. math:: \Lambda^{-1} = D^{-1/2} \big(I - X^\top (I + X X^\top)^{-1} X\big) D^{-1/2}, \qquad
              \log|\Lambda| - \log|D| = 2 \textstyle\sum \log L_{ii}

    [woodbury1950]. All methods are differentiable in d and F.

    Args:
        diagonal: d.
        factor: F.

    >>> m = DiagonalPlusLowRank(torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 1.0]]))
    >>> m.multiply(torch.tensor([1.0, 0.0])), m.solve(torch.tensor([2.0, 1.0])), m.log_det_ratio().exp()
    (tensor([2., 1.]), tensor([1., 0.]), tensor(2.5000, dtype=torch.float64))
    """

    diagonal: Float[Tensor, " n"]
    factor: Float[Tensor, "k n"]

    @cached_property
    def _size(self) -> Float[Tensor, " n"]:
        return self.diagonal.sqrt()

    @cached_property
    def _relative(self) -> Float[Tensor, "k n"]:
        """X."""
        return self.factor / self._size

    @cached_property
    def root(self) -> Float[Tensor, "k k"]:
        """L."""
        gram = inner(self._relative, self._relative)
        return cholesky(gram + torch.eye(len(gram)).to(gram))

    @cached_property
    def _diagonalised(self) -> tuple[Float[Tensor, " k"], Float[Tensor, "k n"]]:
        """θ, the eigenvalues of XᵀX, and the rows √θ_j u_j of its eigenvectors, in which X Xᵀ is diagonal."""
        x = self._relative.detach()
        values, vectors = eigh(inner(x, x))
        return values, combine(vectors.T, x)

    def log_det_ratio(self) -> Float[Tensor, ""]:
        """log |Λ| − log |D|, in double precision."""
        return 2 * self.root.diagonal().log().sum()

    def multiply(self, v: Float[Tensor, "*S n"]) -> Float[Tensor, "*S n"]:
        """Λ v."""
        return self.diagonal * v + (v @ self.factor.T) @ self.factor

    def _coefficients(self, v: Float[Tensor, "*S n"]) -> Float[Tensor, "*S k"]:
        """(I + X Xᵀ)⁻¹ X v, the solution c of the ridge regression min ‖v − Xᵀc‖² + ‖c‖²."""
        right = (v @ self._relative.T).double().unsqueeze(-1)
        return torch.cholesky_solve(right, self.root).squeeze(-1).to(v.dtype)

    def solve(self, v: Float[Tensor, "*S n"]) -> Float[Tensor, "*S n"]:
        """Λ⁻¹ v."""
        v = v / self._size
        return (v - self._coefficients(v) @ self._relative) / self._size

    def halves(self, v: Float[Tensor, "*S n"]) -> Float[Tensor, "*S m"]:
        """Vectors of n + k entries whose products are vᵀ Λ⁻¹ w, without cancellation: [u − Xᵀc, c], u = D^{-1/2} v."""
        v = v / self._size
        c = self._coefficients(v)
        return torch.cat([v - c @ self._relative, c], -1)

    def _power(self, v: Float[Tensor, "*S n"]) -> Float[Tensor, "*S n"]:
        """(I + XᵀX)^{-1/2} v."""
        if self._relative.requires_grad and torch.is_grad_enabled():
            x = self._relative
            return v - (v @ x.T) @ damping(inner(x, x)).to(v.dtype) @ x
        values, rows = self._diagonalised
        return v - ((v @ rows.T) * damped(values).to(v.dtype)) @ rows

    def colour(self, z: Float[Tensor, "*S n"]) -> Float[Tensor, "*S n"]:
        """M z with M = D^{-1/2} (I + XᵀX)^{-1/2}, so that M Mᵀ = Λ⁻¹."""
        return self._power(z) / self._size

    def whiten(self, v: Float[Tensor, "*S n"]) -> Float[Tensor, "*S n"]:
        """Mᵀ v."""
        return self._power(v / self._size)

    @cached_property
    def _effective_parameters(self) -> Float[Tensor, " n"]:
        half = torch.linalg.solve_triangular(self.root, torch.eye(len(self.root)).to(self.root), upper=False)
        return combine(half, self._relative).square().sum(0)

    def effective_parameters(self) -> Float[Tensor, " n"]:
        """1 − d_i (Λ⁻¹)_ii, between 0 and 1."""
        return self._effective_parameters

    def variance(self) -> Float[Tensor, " n"]:
        """The diagonal of Λ⁻¹."""
        tiny = torch.finfo(self.diagonal.dtype).eps
        return (1 - self.effective_parameters()).clamp(min=tiny) / self.diagonal
