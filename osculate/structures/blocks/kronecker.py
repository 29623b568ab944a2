r"""A block that is the Kronecker product of an input and an output factor.

For rows Σ_r g_r ⊗ a_r the block is approximated by

.. math:: G \approx \frac{1}{\sum_n R_n} \Big(\sum_{nr} a_{nr} a_{nr}^\top\Big) \otimes
          \Big(\sum_{vnr} g_{vnr} g_{vnr}^\top\Big),

the mean of the inputs times the sum of the outputs: exact when all inputs, or all output factors, are the same
(a linear layer with a Gaussian likelihood behind a fixed linear map). Weight and bias form one block: the last input
is the constant one. Groups of a grouped convolution are independent blocks along a leading axis.

With A = U_A λ_A U_Aᵀ, B = U_B λ_B U_Bᵀ the posterior precision has the eigenvalues λ_B λ_A + δ exactly: no damping is
split over the factors. A bias with its own δ_b adds, for each eigenvalue of B, the rank-one term (δ_b − δ_w) u uᵀ with
u the last row of U_A; determinant, inverse and root of such a matrix have closed forms. As δ_b may exceed δ_w by many
orders of magnitude (a bias that stays at zero), these are written as sums of positive terms: the share of the bias
direction that the prior determines is δ_w uᵀ D⁻¹ u, not one minus the rest, and a variance is the sum of its parts
along that direction and orthogonal to it.

EKFAC keeps the eigenbasis U = U_B ⊗ U_A, and takes the diagonal of Uᵀ G U itself,

.. math:: s_{oi} = \sum_n \sum_v \big( U_B^\top \, (J_n^\top s_{nv}) \, U_A \big)_{oi}^2,

instead of the products of the factors' eigenvalues. Of all matrices with this eigenbasis it is the closest to G in
the Frobenius norm, so never further from it than KFAC.

The inputs of an embedding are one-hot vectors, so that Σ a aᵀ is the diagonal matrix of the counts of the table's rows:
it is stored as a vector and needs no eigendecomposition. A vocabulary of V costs V numbers instead of V².
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from osculate.curvature.engine import Observation
from osculate.curvature.forms import AnyForm, Dense, Form, Lookup, Outer, Unit, matrices
from osculate.linalg import add_gram, eigh, interpolated, mirror
from osculate.memory import even_parts, give_back
from osculate.structures.blocks._base import Block, Delta, Picked, Precision, by_group, grams, weighted_grams

#: Largest number of entries of rotated rows that are formed at once.
ENTRIES = 2**22
#: Number of data by which the treatment of shared weights is decided.
SHARING_DATA = 16


def reduced_is_closer(form: Outer) -> bool:
    """True if the factors of merged positions are closer to the block of some data than those of single positions."""
    v, _, _, groups, outputs_each = form.g.shape
    size = v * groups * outputs_each * form.head(1).a.shape[-1]
    form = form.head(max(1, min(SHARING_DATA, ENTRIES // size)))
    rows, distances = form.matrices(), []
    for each in (form.reduced(), form):
        a = each.a if each.used is None else each.a * each.used[..., None, None]
        inputs = torch.einsum("nrgi,nrgj->gij", a, a) / max(1, int(each.events))
        outputs = torch.einsum("vnrgo,vnrgp->gop", each.g, each.g)
        product = torch.einsum("vngoi,gop,vngpj,gij->", rows, outputs, rows, inputs)
        square = (outputs.square().sum((1, 2)) * inputs.square().sum((1, 2))).sum()
        distances.append(square - 2 * product)  # up to the norm of the block itself
    return bool(distances[0] < distances[1])


@dataclass(frozen=True, eq=False)
class KroneckerBlock(Block):
    """The sums of both factors, and the number of positions in these sums.

    Attributes:
        positions: Index of each entry in θ, flat over (G, O, I).
        inputs: Σ a aᵀ.
        outputs: Σ g gᵀ.
        count: Number of data times positions.
        has_bias: True if the last input is the constant one of a bias.
        corrected: The diagonal of G in the eigenbasis, from a second pass over the data; None where the eigenvalues are
            those of the factors.
        reduces: 1 if the positions of a datum are merged, 0 if each counts as a datum, −1 before the first data decide.
        relative_error: ‖A − Â‖ / ‖A‖ of a sum A of two blocks that this product Â stands for (Frobenius norms).
    """

    state: ClassVar[tuple[str, ...]] = ("inputs", "outputs", "count", "corrected")
    #: Treatment of weights that are used at several positions, see :class:`~osculate.structures.Kron`.
    sharing: ClassVar[tuple[str, ...]] = ("expand", "reduce", "auto")
    positions: Tensor
    inputs: Float[Tensor, "G I I"]
    outputs: Float[Tensor, "G O O"]
    count: Float[Tensor, ""]
    has_bias: bool
    corrected: Float[Tensor, "G O I"] | None = None
    reduces: Int[Tensor, ""] = field(default_factory=lambda: torch.zeros((), dtype=torch.int))
    relative_error: float = field(default=0.0, init=False)

    @classmethod
    def zero(cls, positions: Tensor, has_bias: bool, dtype: torch.dtype, device: torch.device) -> "KroneckerBlock":
        """An empty block; ``positions`` is (G, O, I)."""
        g, o, i = positions.shape
        like = torch.zeros((), dtype=dtype, device=device)
        flat = positions.reshape(-1).to(device)
        return cls(flat, like.new_zeros(g, i, i), like.new_zeros(g, o, o), like, has_bias)

    def accumulate(self, form: Form) -> None:
        assert isinstance(form, Outer)
        if form.shared > 1:
            if self.reduces < 0:
                self.reduces.fill_(reduced_is_closer(form))
            form = form.reduced() if self.reduces else form
        if form.fresh:
            a = form.a if form.used is None else form.a * form.used[..., None, None]
            add_gram(self.inputs, a.permute(2, 0, 1, 3).flatten(1, 2))  # (G, N·R, I)
            self.count.add_(form.events)
        if form.shared > form.g.shape[-1]:  # one small product for each datum, without moving positions
            g = form.g.permute(3, 0, 1, 4, 2).flatten(1, 2)  # (G, V·N, O, R)
            self.outputs.add_((g @ g.mT).sum(1))
        else:
            add_gram(self.outputs, form.g.permute(3, 0, 1, 2, 4).flatten(1, 3))  # (G, V·N·R, O)

    def addends(self, pass_index: int) -> list[Tensor]:
        if pass_index:
            return [] if self.corrected is None else [self.corrected]
        return [self.inputs, self.outputs, self.count]

    def said(self, start: Observation) -> int:
        return int(self.reduces)

    def hear(self, each: Sequence[int], rank: int, start: Observation) -> None:
        self.reduces.fill_(_agreed(each))

    def decomposed(self) -> dict[str, Tensor]:
        return {"_input_basis": self.inputs, "_output_basis": self.outputs}

    def added(self, other: Block) -> Block:
        assert isinstance(other, KroneckerBlock)
        reduces = torch.full_like(self.reduces, _agreed([int(self.reduces), int(other.reduces)]))
        return replace(super().added(other), reduces=reduces)  # type: ignore[type-var]

    def scaled(self, factor: Float[Tensor, ""] | float) -> "KroneckerBlock":
        return replace(self, outputs=self.outputs * factor)

    def combined(self, other: Block) -> "KroneckerBlock":
        """The Kronecker product nearest to the sum: the leading singular pair of a matrix of rank two."""
        assert isinstance(other, KroneckerBlock)
        left = torch.stack([self.inputs / self.count.clamp(min=1), other.inputs / other.count.clamp(min=1)])
        right = torch.stack([self.outputs, other.outputs.to(self.outputs)])
        left, error, total = left.to(self.inputs), 0.0, 0.0
        inputs, outputs = torch.empty_like(left[0]), torch.empty_like(right[0])
        for group in range(len(inputs)):
            values, first, second = _rank_one(left[:, group].double(), right[:, group].double())
            inputs[group], outputs[group] = first.to(inputs), second.to(outputs)
            error, total = error + float(values[1:].square().sum()), total + float(values.square().sum())
        relative = (error / total) ** 0.5 if total else 0.0
        found = replace(self, inputs=inputs, outputs=outputs, count=torch.ones_like(self.count))
        object.__setattr__(found, "relative_error", relative)
        return found

    def finish(self) -> None:
        mirror(self.inputs)
        mirror(self.outputs)

    def correct(self, form: AnyForm) -> None:
        """Add one batch to the eigenvalues, in the basis of the present factors."""
        assert isinstance(form, Outer)
        assert self.corrected is not None
        if form.shared == 1:
            a, g = self.project(form, 1)
            self.corrected.add_(torch.einsum("ngo,ngi->goi", g.sum(0), a.square()))
            return
        inputs = form.a
        for part in even_parts(form.g.shape[1], ENTRIES // (len(form.g) * self.corrected.numel())):
            self.corrected.add_(self._rotated_matrices(inputs[part], form.g[:, part]).square().sum((0, 1)))

    @cached_property
    def _input_basis(self) -> tuple[Tensor, Tensor]:
        return _decomposed(self.inputs / self.count.clamp(min=1))

    @cached_property
    def _output_basis(self) -> tuple[Tensor, Tensor]:
        return _decomposed(self.outputs)

    @cached_property
    def eigenvalues(self) -> Float[Tensor, "G O I"]:
        """The eigenvalues of the block: products of those of the factors, or the corrected ones."""
        if self.corrected is not None:
            return self.corrected
        return self._output_basis[0].unsqueeze(-1) * self._input_basis[0].unsqueeze(-2)

    def rotate(self, v: Float[Tensor, "*S G O I"]) -> Float[Tensor, "*S G O I"]:
        """Matrices into the eigenbasis."""
        return self._output_basis[1].mT @ v @ self._input_basis[1]

    def rotate_back(self, v: Float[Tensor, "*S G O I"]) -> Float[Tensor, "*S G O I"]:
        """Matrices out of the eigenbasis."""
        return self._output_basis[1] @ v @ self._input_basis[1].mT

    def times(self, v: Float[Tensor, "*S G O I"]) -> Float[Tensor, "*S G O I"]:
        """The block times matrices; by its factors, which takes half the products of the eigenbasis."""
        if self.corrected is not None:
            return self.rotate_back(self.corrected * self.rotate(v))
        return self.outputs @ v @ (self.inputs / self.count.clamp(min=1))

    def project(self, form: AnyForm, events: int) -> Any:
        if isinstance(form, Unit) or (isinstance(form, Outer) and form.shared == 1):
            a = by_group(form.a[:, 0], self._input_basis[1])
            if isinstance(form, Unit):
                return a, None
            g = by_group(form.g[:, :, 0], self._output_basis[1])
            return a, g.square() if events == 1 else g
        if isinstance(form, Outer):
            return self._rotated_matrices(form.a, form.g)
        shape = (len(self.outputs), self.outputs.shape[-1], self.inputs.shape[-1])
        return self.rotate(form.rows().unflatten(-1, shape))

    def _rotated_matrices(
        self, a: Float[Tensor, "N R G I"], g: Float[Tensor, "V N R G O"]
    ) -> Float[Tensor, "V N G O I"]:
        """The rows in the eigenbasis, rotated before or after the sum over positions, whichever is cheaper."""
        v, _, r, _, o = g.shape
        i = a.shape[-1]
        ua, ub = self._input_basis[1], self._output_basis[1]
        first_a, first_g = r * i < v * o * i, r < i
        if first_a:
            rotated = ua.mT @ a.permute(2, 3, 0, 1).flatten(2)  # (G, I, N·R)
            a = rotated.unflatten(2, a.shape[:2]).permute(2, 3, 0, 1)
        if first_g:
            g = (ub.mT @ g.permute(0, 1, 3, 4, 2)).permute(0, 1, 4, 2, 3)
        rows = matrices(a, g)
        rows = rows if first_a else rows @ ua
        return rows if first_g else ub.mT @ rows

    def sensitivity(self) -> Float[Tensor, " p"]:
        if self.corrected is not None:
            return self._diagonal_of(self.corrected.detach()).abs().sqrt().reshape(-1)
        outputs, inputs = (factor.detach().sqrt() for factor in self._diagonals())
        return (outputs.unsqueeze(-1) * inputs.unsqueeze(-2)).reshape(-1)

    def _diagonal_of(self, values: Float[Tensor, "G O I"]) -> Float[Tensor, "G O I"]:
        """The diagonal of a matrix with these eigenvalues."""
        return self._output_basis[1].square() @ values @ self._input_basis[1].square().mT

    def _diagonals(self) -> tuple[Float[Tensor, "G O"], Float[Tensor, "G I"]]:
        """The diagonals of both factors."""
        return self.outputs.diagonal(dim1=-2, dim2=-1), self.inputs.diagonal(dim1=-2, dim2=-1)

    def precision(self, scale: Float[Tensor, ""] | float, delta: Delta) -> "KroneckerPrecision":
        if delta.weight is None:
            raise ValueError(
                "the kron structure is exact for one prior precision a parameter tensor, and has no eigenbasis for "
                "precisions that vary within a tensor. Use an Isotropic or Layerwise prior, or structure='diag' "
                "or 'full'."
            )
        values = self.eigenvalues
        bias = delta.bias.to(values) if delta.bias is not None and self.has_bias else None
        return KroneckerPrecision(self, scale, scale * values, delta.weight.to(values), bias)

    @cached_property
    def bias_direction(self) -> Float[Tensor, "G 1 I"]:
        """u: the bias column in the eigenbasis."""
        return self._input_basis[1][:, -1:, :]

    def dense(self) -> Float[Tensor, "p p"]:
        size, shape = len(self.positions), self.eigenvalues.shape
        units = self.rotate(torch.eye(size, dtype=self.outputs.dtype, device=self.outputs.device).unflatten(-1, shape))
        return units.flatten(1) * self.eigenvalues.reshape(-1) @ units.flatten(1).T


def _agreed(choices: Sequence[int]) -> int:
    """The one treatment of shared weights that all have, −1 where none has data."""
    decided = {choice for choice in choices if choice >= 0}
    if len(decided) > 1:
        raise ValueError(
            "these factors do not add: sharing='auto' chose by the first data of each fit or process, 'reduce' in one "
            "and 'expand' in another. Fit all data at once, or all with Kron(sharing='expand') or "
            "Kron(sharing='reduce')."
        )
    return decided.pop() if decided else -1


def _decomposed(factor: Float[Tensor, "G n n"]) -> tuple[Float[Tensor, "G n"], Float[Tensor, "G n n"]]:
    """The eigenvalues and eigenvectors; their workspace is larger than the factor, so room is made before and after."""
    give_back()
    found = eigh(factor)
    give_back()
    return found


def _rank_one(a: Float[Tensor, "2 *n"], b: Float[Tensor, "2 *m"]) -> tuple[Tensor, Tensor, Tensor]:
    """The singular values of a₁ b₁ᵀ + a₂ b₂ᵀ, flat, and its leading pair of vectors in the factors' shapes."""
    (q_a, r_a), (q_b, r_b) = (torch.linalg.qr(each.flatten(1).T) for each in (a, b))
    left, values, right = torch.linalg.svd(r_a @ r_b.T)
    first, second = (q_a @ left[:, 0]).reshape(a.shape[1:]), (q_b @ right[0]).reshape(b.shape[1:])
    diagonal = first.diagonal() if first.ndim == 2 else first  # a table's factor is a diagonal
    sign = torch.where(diagonal.sum() < 0, -1.0, 1.0)  # of positive semi-definite matrices both are so too
    return values, values[0].sqrt() * sign * first, values[0].sqrt() * sign * second


@dataclass(frozen=True, eq=False)
class KroneckerPrecision(Precision):
    """The precision in the eigenbasis: D + (δ_b − δ_w) u uᵀ for each eigenvalue of the output factor, D = signal + δ_w.

    Attributes:
        block: The factors and their bases.
        scale: Factor of the block.
        signal: Products scale · λ_B λ_A.
        weight: δ_w.
        bias: δ_b, None where weight and bias share their precision.
    """

    block: KroneckerBlock
    scale: Float[Tensor, ""] | float
    signal: Float[Tensor, "G O I"]
    weight: Float[Tensor, ""]
    bias: Float[Tensor, ""] | None

    @cached_property
    def _inverse(self) -> Float[Tensor, "G O I"]:
        """The reciprocal eigenvalues 1 / D."""
        return (self.signal + self.weight).reciprocal()

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
        return (values @ self.block.bias_direction.square().mT).squeeze(-1)

    @cached_property
    def _length(self) -> Float[Tensor, "G O"]:
        """ûᵀ û with û = D^{-1/2} u, so that 1 − t = δ_w ûᵀ û."""
        return self._along_bias(self._inverse)

    @cached_property
    def _determinant(self) -> Float[Tensor, "G O"]:
        """|I + c û ûᵀ| with c = δ_b − δ_w, written as a sum of positive terms."""
        assert self.bias is not None
        return self._learned + self.bias * self._length

    def log_det_ratio(self) -> Float[Tensor, ""]:
        total = (self.signal / self.weight).log1p().sum(-1).sum(dtype=torch.double)  # rows are summed in their own type
        if self.bias is None:
            return total
        return total + (self.weight / self.bias * self._determinant).log().sum(dtype=torch.double)

    @property
    def _prior(self) -> Float[Tensor, " I"]:
        """δ of each input."""
        delta = self.weight.repeat(self.signal.shape[-1])
        if self.bias is not None:
            delta[-1] = self.bias
        return delta

    def effective_parameters(self) -> Float[Tensor, " p"]:
        return 1 - self._prior.expand(self.signal.shape).reshape(-1) * self.variance()

    def effective_parameters_by_tensor(self, split: Callable[[Tensor], list[Tensor]]) -> list[Float[Tensor, ""]]:
        """The gradients of :meth:`log_det_ratio` in −log δ_w and −log δ_b, without leaving the eigenbasis."""
        total = self._shares.sum(-1)
        if not self.block.has_bias:
            return [total.sum(dtype=torch.double)]
        t = self._learned
        if self.bias is None:
            return [(total - t).sum(dtype=torch.double), t.sum(dtype=torch.double)]
        bias = t / self._determinant
        mixed = self._along_bias(self._shares * self._inverse)  # δ_w of it is the change of 1 − t in log δ_w
        weight = total - bias - (self.bias - self.weight) * mixed / self._determinant
        return [weight.sum(dtype=torch.double), bias.sum(dtype=torch.double)]

    def _rank_one(self, y: Float[Tensor, "*S G O I"], power: float) -> tuple[Tensor, Float[Tensor, "*S G O"]]:
        """(I + c û ûᵀ)^power y and its product with û, computed without cancellation."""
        direction = self.block.bias_direction * self._inverse.sqrt()
        along = (direction * y).sum(-1)
        scale = self._determinant**power
        return y + ((scale - 1) / self._length * along).unsqueeze(-1) * direction, scale * along

    def multiply(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        rows = v.unflatten(-1, self.signal.shape)
        return (self.scale * self.block.times(rows) + self._prior * rows).flatten(-3)

    def solve(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return self._coloured(self.block.rotate(v.unflatten(-1, self.signal.shape)) * self._inverse.sqrt(), -1.0)

    def colour(self, z: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return self._coloured(z.unflatten(-1, self.signal.shape), -0.5)

    def _coloured(self, y: Float[Tensor, "*S G O I"], power: float) -> Float[Tensor, "S p"]:
        """D^{-1/2} (I + c û ûᵀ)^power y out of the eigenbasis."""
        if self.bias is None:
            return self.block.rotate_back(y * self._inverse.sqrt()).flatten(-3)
        y, along = self._rank_one(y, power)
        rows = self.block.rotate_back(y * self._inverse.sqrt())
        rows[..., -1:] = self.block._output_basis[1] @ along.unsqueeze(-1)  # for a large δ_b a small difference
        return rows.flatten(-3)

    def whiten(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return self._whitened(self.block.rotate(v.unflatten(-1, self.signal.shape))).flatten(-3)

    def _whitened(self, rotated: Tensor) -> Tensor:
        y = rotated * self._inverse.sqrt()
        return y if self.bias is None else self._rank_one(y, -0.5)[0]

    def variance(self) -> Float[Tensor, " p"]:
        ub, ua = self.block._output_basis[1], self.block._input_basis[1]
        return (ub.square() @ self._quadratic(ua.transpose(0, 1)).permute(1, 2, 0)).reshape(-1)

    def _quadratic(self, a: Float[Tensor, "N G I"]) -> Float[Tensor, "N G O"]:
        """aᵀ (D + c u uᵀ)⁻¹ a of inputs in the eigenbasis."""
        if self.bias is None:
            return self._weighted(a.square())
        u = self.block.bias_direction.squeeze(1)
        # The part orthogonal to û is the same for a − α u with any α: this one has the least cancellation at the
        # largest eigenvalue of the outputs.
        alpha = ((a * (u * self._inverse[:, -1])).sum(-1) / self._length[:, -1]).unsqueeze(-1)
        a = a - alpha * u
        along = by_group(a * u, self._inverse.mT)
        off = by_group(a.square(), self._inverse.mT) - along * (along / self._length)
        along = along + alpha * self._length
        return off.clamp(min=0) + along * (along / self._length / self._determinant)

    def _weighted(self, squares: Float[Tensor, "N G I"]) -> Float[Tensor, "N G O"]:
        """D⁻¹ times squares."""
        return by_group(squares, self._inverse.mT)

    def contract(self, projected: Any, events: int) -> Float[Tensor, "N T E E"]:
        if not isinstance(projected, tuple):
            return grams(self._whitened(projected).flatten(2), events)
        a, g = projected
        weights = self._quadratic(a)
        if g is not None:
            return weighted_grams(g, weights, events)
        basis = self.block._output_basis[1][0]  # last layer: Σ_o w_o u_o u_oᵀ
        if events == 1:
            return (weights[:, 0] @ basis.square().T)[..., None, None]
        return ((basis * weights) @ basis.T).unsqueeze(1)


@dataclass(frozen=True, eq=False)
class InterpolatedPrecision(KroneckerPrecision):
    """The precision with its reciprocal eigenvalues as a product of thin factors, for few data at a time.

    For a single datum, reading the table takes as long as the product with a basis, and its factors are far smaller.
    """

    @cached_property
    def _factors(self) -> tuple[Tensor, Tensor] | None:
        """1 / D of one group as a product, None where its eigenvalues are not smooth."""
        return interpolated(self._inverse[0].mT) if len(self._inverse) == 1 else None

    def _weighted(self, squares: Float[Tensor, "N G I"]) -> Float[Tensor, "N G O"]:
        if self._factors is None:
            return super()._weighted(squares)
        left, right = self._factors
        return (squares.squeeze(-2) @ left @ right).unsqueeze(-2)


@dataclass(frozen=True, eq=False)
class LookupBlock(KroneckerBlock):
    """The block of an embedding: the counts of the rows of its table, and the sum of the output factor.

    Attributes:
        inputs: The diagonal of Σ a aᵀ, (1, I).
    """

    inputs: Float[Tensor, "1 I"]

    @classmethod
    def zero(cls, positions: Tensor, has_bias: bool, dtype: torch.dtype, device: torch.device) -> "LookupBlock":
        """An empty block; ``positions`` is (1, O, I)."""
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

    def decomposed(self) -> dict[str, Tensor]:
        return {"_output_basis": self.outputs}

    def finish(self) -> None:
        mirror(self.outputs)

    def correct(self, form: AnyForm) -> None:
        assert self.corrected is not None
        self.project(form, 1).add_squares(self.corrected[0])

    @cached_property
    def _input_basis(self) -> tuple[Tensor, Tensor]:
        """The mean counts; their eigenvectors are unit vectors, which are not made."""
        return self.inputs / self.count.clamp(min=1), self.inputs.new_empty(0)

    def rotate(self, v: Float[Tensor, "*S 1 O I"]) -> Float[Tensor, "*S 1 O I"]:
        return self._output_basis[1].mT @ v

    def rotate_back(self, v: Float[Tensor, "*S 1 O I"]) -> Float[Tensor, "*S 1 O I"]:
        return self._output_basis[1] @ v

    def times(self, v: Float[Tensor, "*S 1 O I"]) -> Float[Tensor, "*S 1 O I"]:
        if self.corrected is not None:
            return super().times(v)
        return self.outputs @ v * (self.inputs / self.count.clamp(min=1)).unsqueeze(-2)

    def _diagonal_of(self, values: Float[Tensor, "G O I"]) -> Float[Tensor, "G O I"]:
        return self._output_basis[1].square() @ values

    def _diagonals(self) -> tuple[Float[Tensor, "G O"], Float[Tensor, "G I"]]:
        return self.outputs.diagonal(dim1=-2, dim2=-1), self.inputs

    def project(self, form: AnyForm, events: int) -> Any:
        if not isinstance(form, Lookup):
            return super().project(Dense(form.rows()), events)
        indices, g = form.merged()
        return Picked.of(indices, g @ self._output_basis[1][0], events)

    def precision(self, scale: Float[Tensor, ""] | float, delta: Delta) -> "LookupPrecision":
        return LookupPrecision(**vars(super().precision(scale, delta)))


@dataclass(frozen=True, eq=False)
class LookupPrecision(KroneckerPrecision):
    """The precision of a lookup: the eigenbasis is that of the output factor."""

    def variance(self) -> Float[Tensor, " p"]:
        return (self.block._output_basis[1].square() @ self._inverse).reshape(-1)

    def contract(self, projected: Any, events: int) -> Float[Tensor, "N T E E"]:
        if isinstance(projected, Picked):
            return projected.grams(self._inverse[0], events)
        return super().contract(projected, events)
