r"""A block that is the Kronecker product of an input and an output factor.

For rows Σ_r g_r ⊗ a_r the block is approximated by

.. math:: G \approx \frac{1}{\sum_n R_n} \Big(\sum_{nr} a_{nr} a_{nr}^\top\Big) \otimes
          \Big(\sum_{vnr} g_{vnr} g_{vnr}^\top\Big),

the mean of the inputs times the sum of the outputs: exact when all inputs, or all output factors, are the same
(a linear layer with a Gaussian likelihood behind a fixed linear map). Weight and bias form one block: the last input
is the constant one. Groups of a grouped convolution are independent blocks along a leading axis.

With A = U_A λ_A U_Aᵀ, B = U_B λ_B U_Bᵀ the posterior precision has the eigenvalues λ_B λ_A + δ exactly: no damping is
split over the factors. A bias with its own δ_b adds, for each eigenvalue of B, the rank-one term (δ_b − δ_w) u uᵀ with
u the last row of U_A; determinant, inverse and root of such a matrix are closed forms.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.forms import AnyForm, Form, Outer, Unit, matrices
from osculate.linalg import add_gram, eigh, mirror
from osculate.structures.blocks._base import Block, Delta, Precision, grams, weighted_grams


@dataclass(frozen=True, eq=False)
class KroneckerBlock(Block):
    """The sums of both factors and the number of positions they were taken over.

    Attributes:
        positions: where each entry stands in θ, flat over (G, O, I).
        inputs: Σ a aᵀ.
        outputs: Σ g gᵀ.
        count: the number of data times positions.
        has_bias: whether the last input is the constant one of a bias.
    """

    positions: Tensor
    inputs: Float[Tensor, "G I I"]
    outputs: Float[Tensor, "G O O"]
    count: Float[Tensor, ""]
    has_bias: bool

    @classmethod
    def zero(cls, positions: Tensor, has_bias: bool, dtype: torch.dtype, device: torch.device) -> "KroneckerBlock":
        """No data yet; ``positions`` is (G, O, I)."""
        g, o, i = positions.shape
        like = torch.zeros((), dtype=dtype, device=device)
        flat = positions.reshape(-1).to(device)
        return cls(flat, like.new_zeros(g, i, i), like.new_zeros(g, o, o), like, has_bias)

    def tensors(self) -> dict[str, Tensor]:
        return {"inputs": self.inputs, "outputs": self.outputs, "count": self.count}

    def with_tensors(self, tensors: dict[str, Tensor]) -> "KroneckerBlock":
        return replace(self, inputs=tensors["inputs"], outputs=tensors["outputs"], count=tensors["count"])

    def accumulate(self, form: Form) -> None:
        assert isinstance(form, Outer)
        if form.fresh:
            a = form.a
            add_gram(self.inputs, a.permute(2, 0, 1, 3).flatten(1, 2))  # (G, N·R, I)
            self.count.add_(a.shape[0] * a.shape[1])
        if form.shared > form.g.shape[-1]:  # one small product for each datum, without bringing positions together
            g = form.g.permute(3, 0, 1, 4, 2).flatten(1, 2)  # (G, V·N, O, R)
            self.outputs.add_((g @ g.mT).sum(1))
        else:
            add_gram(self.outputs, form.g.permute(3, 0, 1, 2, 4).flatten(1, 3))  # (G, V·N·R, O)

    def finish(self) -> None:
        mirror(self.inputs)
        mirror(self.outputs)

    @cached_property
    def _input_basis(self) -> tuple[Tensor, Tensor]:
        return eigh(self.inputs / self.count.clamp(min=1))

    @cached_property
    def _output_basis(self) -> tuple[Tensor, Tensor]:
        return eigh(self.outputs)

    @cached_property
    def _eigenvalues(self) -> Float[Tensor, "G O I"]:
        return self._output_basis[0].unsqueeze(-1) * self._input_basis[0].unsqueeze(-2)

    def rotate(self, v: Float[Tensor, "*S G O I"]) -> Float[Tensor, "*S G O I"]:
        """Matrices into the eigenbasis."""
        return self._output_basis[1].mT @ v @ self._input_basis[1]

    def rotate_back(self, v: Float[Tensor, "*S G O I"]) -> Float[Tensor, "*S G O I"]:
        """Matrices out of the eigenbasis."""
        return self._output_basis[1] @ v @ self._input_basis[1].mT

    def project(self, form: AnyForm, events: int) -> Any:
        if isinstance(form, Outer) and form.shared == 1:
            a = torch.einsum("ngi,gij->ngj", form.a[:, 0], self._input_basis[1])
            g = torch.einsum("vngo,gop->vngp", form.g[:, :, 0], self._output_basis[1])
            return a, g.square() if events == 1 else g
        if isinstance(form, Unit):
            return torch.einsum("ngi,gij->ngj", form.a[:, 0], self._input_basis[1]), None
        if isinstance(form, Outer):
            return self._rotated_matrices(form.a, form.g)
        shape = (len(self.outputs), self.outputs.shape[-1], self.inputs.shape[-1])
        return self.rotate(form.rows().unflatten(-1, shape))

    def _rotated_matrices(
        self, a: Float[Tensor, "N R G I"], g: Float[Tensor, "V N R G O"]
    ) -> Float[Tensor, "V N G O I"]:
        """Rotate a factor before the sum over positions where that is the cheaper order, the matrix after it else."""
        v, _, r, _, o = g.shape
        i = a.shape[-1]
        ua, ub = self._input_basis[1], self._output_basis[1]
        first_a, first_g = r * i < v * o * i, r < i
        if first_a:
            turned = ua.mT @ a.permute(2, 3, 0, 1).flatten(2)  # (G, I, N·R)
            a = turned.unflatten(2, a.shape[:2]).permute(2, 3, 0, 1)
        if first_g:
            g = (ub.mT @ g.permute(0, 1, 3, 4, 2)).permute(0, 1, 4, 2, 3)
        rows = matrices(a, g)
        rows = rows if first_a else rows @ ua
        return rows if first_g else ub.mT @ rows

    def precision(self, scale: Float[Tensor, ""] | float, delta: Delta) -> "KroneckerPrecision":
        if delta.weight is None:
            raise ValueError(
                "the kron structure is exact for one prior precision a parameter tensor, and has no eigenbasis for "
                "precisions that vary within a tensor. Use an Isotropic or Layerwise prior, or structure='diag' "
                "or 'full'."
            )
        values = self._eigenvalues
        bias = delta.bias.to(values) if delta.bias is not None and self.has_bias else None
        return KroneckerPrecision(self, scale * values, delta.weight.to(values), bias)

    def bias_direction(self) -> Float[Tensor, "G 1 I"]:
        """u: the bias column in the eigenbasis."""
        return self._input_basis[1][:, -1:, :]

    def dense(self) -> Float[Tensor, "p p"]:
        a = self.inputs / self.count.clamp(min=1)
        return torch.block_diag(*(torch.kron(b, a_) for b, a_ in zip(self.outputs, a, strict=True)))


@dataclass(frozen=True, eq=False)
class KroneckerPrecision(Precision):
    """In the eigenbasis: D + (δ_b − δ_w) u uᵀ for each eigenvalue of the output factor, D = signal + δ_w.

    Attributes:
        block: the factors and their bases.
        signal: scale λ_B λ_A.
        weight: δ_w.
        bias: δ_b, None where weight and bias share their precision.
    """

    block: KroneckerBlock
    signal: Float[Tensor, "G O I"]
    weight: Float[Tensor, ""]
    bias: Float[Tensor, ""] | None

    @cached_property
    def _eigenvalues(self) -> Float[Tensor, "G O I"]:
        return self.signal + self.weight

    @cached_property
    def _inverse(self) -> Float[Tensor, "G O I"]:
        return self._eigenvalues.reciprocal()

    @cached_property
    def _shares(self) -> Float[Tensor, "G O I"]:
        """signal / D: the share of each direction that the data determine."""
        return self.signal * self._inverse

    @cached_property
    def _learned(self) -> Float[Tensor, "G O"]:
        """t = uᵀ (signal / D) u: the share of the bias direction that the data determine."""
        return self._along_bias(self._shares)

    def _along_bias(self, values: Float[Tensor, "G O I"]) -> Float[Tensor, "G O"]:
        """uᵀ diag(values) u."""
        return (values @ self.block.bias_direction().square().mT).squeeze(-1)

    @cached_property
    def _determinant(self) -> Float[Tensor, "G O"]:
        """1 + (δ_b − δ_w) uᵀ D⁻¹ u, written as a sum of positive terms."""
        assert self.bias is not None
        return self._learned + self.bias / self.weight * (1 - self._learned)

    @property
    def _downdate(self) -> Float[Tensor, "G O"]:
        """k with (D + c u uᵀ)⁻¹ = D⁻¹ − k D⁻¹ u uᵀ D⁻¹."""
        assert self.bias is not None
        return (self.bias - self.weight) / self._determinant

    def log_det_ratio(self) -> Float[Tensor, ""]:
        total = (self.signal / self.weight).log1p().sum(-1).sum(dtype=torch.double)  # rows in their own type
        if self.bias is None:
            return total
        return total + (1 - self._learned + self._learned * self.weight / self.bias).log().sum(dtype=torch.double)

    def determined(self) -> Float[Tensor, " p"]:
        delta = self.weight.expand(self.signal.shape)
        if self.bias is not None:
            delta = torch.cat([delta[..., :-1], self.bias.expand(*delta.shape[:-1], 1)], -1)
        return 1 - delta.reshape(-1) * self.variance()

    def determined_totals(self, split: Callable[[Tensor], list[Tensor]]) -> list[Float[Tensor, ""]]:
        """The gradients of :meth:`log_det_ratio` in −log δ_w and −log δ_b, without leaving the eigenbasis."""
        total = self._shares.sum(-1)
        if not self.block.has_bias:
            return [total.sum(dtype=torch.double)]
        t, ratio = self._learned, 1.0 if self.bias is None else self.weight / self.bias
        change = self._along_bias(self._shares.square()) - t  # of t in log δ_w
        determinant = 1 - t + t * ratio
        bias = t * ratio / determinant
        weight = total - bias - (ratio - 1) * change / determinant
        return [weight.sum(dtype=torch.double), bias.sum(dtype=torch.double)]

    def _rank_one(self, y: Tensor, power: float) -> Tensor:
        """(I + c û ûᵀ)^power y with û = D^{-1/2} u, for y (*S, G, O, I)."""
        if self.bias is None:
            return y
        direction = self.block.bias_direction() * self._inverse.sqrt()
        length = ((1 - self._learned) / self.weight).clamp(min=torch.finfo(y.dtype).tiny)  # ûᵀ û
        gain = (self._determinant**power - 1) / length
        return y + (gain * (direction * y).sum(-1)).unsqueeze(-1) * direction

    def _apply(self, v: Tensor, before: float, middle: float, after: float) -> Tensor:
        """D^after (I + c û ûᵀ)^middle D^before on vectors (*S, p) in and out of the eigenbasis."""
        y = self.block.rotate(v.unflatten(-1, self.signal.shape)) * self._eigenvalues**before
        return self.block.rotate_back(self._rank_one(y, middle) * self._eigenvalues**after).flatten(-3)

    def multiply(self, v: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        return self._apply(v, 0.5, 1.0, 0.5)

    def solve(self, v: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        return self._apply(v, -0.5, -1.0, -0.5)

    def colour(self, z: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        y = self._rank_one(z.unflatten(-1, self.signal.shape), -0.5)
        return self.block.rotate_back(y * self._inverse.sqrt()).flatten(-3)

    def whiten(self, v: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        return self._whitened(self.block.rotate(v.unflatten(-1, self.signal.shape))).flatten(-3)

    def _whitened(self, rotated: Tensor) -> Tensor:
        return self._rank_one(rotated * self._inverse.sqrt(), -0.5)

    def variance(self) -> Float[Tensor, " p"]:
        ub, ua = self.block._output_basis[1], self.block._input_basis[1]
        result = ub.square() @ self._inverse @ ua.square().mT
        if self.bias is not None:
            pushed = (self._inverse * self.block.bias_direction()) @ ua.mT
            result = result - ub.square() @ (self._downdate.unsqueeze(-1) * pushed.square())
        return result.reshape(-1)

    def contract(self, projected: Any, events: int) -> Float[Tensor, "N T E E"]:
        if not isinstance(projected, tuple):
            return grams(self._whitened(projected).flatten(2), events)
        a, g = projected
        weights = torch.einsum("ngi,goi->ngo", a.square(), self._inverse)
        if self.bias is not None:
            u = self.block.bias_direction().squeeze(1)
            along = torch.einsum("ngi,goi->ngo", a * u, self._inverse)
            weights = weights - self._downdate * along.square()
        if g is not None:
            return weighted_grams(g, weights, events)
        basis = self.block._output_basis[1][0]  # of a last layer: Σ_o w_o u_o u_oᵀ
        if events == 1:
            return (weights[:, 0] @ basis.square().T)[..., None, None]
        return ((basis * weights) @ basis.T).unsqueeze(1)
