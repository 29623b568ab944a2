"""A block that keeps only its diagonal."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.forms import AnyForm, Form, Lookup, Outer, Unit, rows_in_parts
from osculate.structures.blocks._base import Block, Delta, Picked, Precision, by_group, weighted_grams

#: Largest number of row entries that are formed at once.
ENTRIES = 2**22
#: Cost of writing an entry to memory, in multiplications of a matrix product.
PASS = 8
#: Smallest block for which a single row is enough for a product at full speed.
SINGLE_ROW_ENTRIES = 2**15


@dataclass(frozen=True, eq=False)
class DiagonalBlock(Block):
    r"""g_p = Σ_n Σ_v (J_nᵀ s_nv)_p²: O(p) memory.

    For few positions no row is formed: with one, the square of an outer product is the outer product of the squares.
    """

    state: ClassVar[tuple[str, ...]] = ("values",)
    positions: Tensor
    values: Float[Tensor, " p"]

    @classmethod
    def zero(cls, positions: Tensor, dtype: torch.dtype, device: torch.device) -> "DiagonalBlock":
        """An empty block, before any data."""
        flat = positions.reshape(-1).to(device)
        return cls(flat, torch.zeros(len(flat), dtype=dtype, device=device))

    def accumulate(self, form: Form) -> None:
        if isinstance(form, Lookup):
            Picked.of(*form.merged(), events=1).add_squares(self.values.unflatten(0, (-1, form.size)))
        elif isinstance(form, Outer) and self._pairs_are_cheaper(form):
            self._add_pairs(form)
        elif isinstance(form, Outer) and len(self.values) >= SINGLE_ROW_ENTRIES:
            self._add_one_by_one(form)
        else:
            for rows in rows_in_parts(form, ENTRIES):
                self.values.add_(rows.square().sum((0, 1)))

    def _pairs_are_cheaper(self, form: Outer) -> bool:
        """R²/2 pairs of positions for V columns, made and multiplied, against V rows of products over R positions."""
        v, _, r, groups, o = form.g.shape
        features = len(self.values) // (groups * o)
        return r * (r + 1) // 2 * (PASS * v + features) <= v * features * (r + PASS)

    def _add_pairs(self, form: Outer) -> None:
        """Σ_v (Σ_r g_r ⊗ a_r)² = Σ_{r ≤ s} w_rs (Σ_v g_r g_s) ⊗ (a_r a_s): one product for some data, all columns."""
        every, (v, n, r, groups, o) = form.a, form.g.shape
        step = max(1, ENTRIES // (r * groups * (v * o + every.shape[-1])))
        for start in range(0, n, step):
            g, a = form.g[:, start : start + step], every[start : start + step]
            total = _products(g[:, :, :1], g, a[:, :1], a)
            for s in range(1, r):
                total += _products(g[:, :, s : s + 1], g[:, :, s:], a[:, s : s + 1], a[:, s:])
            self.values.add_(total.clamp_(min=0).reshape(-1))  # rounding may leave small negative values

    def _add_one_by_one(self, form: Outer) -> None:
        """Add each row from the same buffer, which stays in the cache: little more work than a weight gradient."""
        g, inputs = form.g.permute(0, 1, 3, 4, 2), form.a.transpose(1, 2)  # (V, N, G, O, R), (N, G, R, I)
        row = self.values.new_empty(*g.shape[2:4], inputs.shape[-1])
        total = self.values.view_as(row)
        for n, a in enumerate(inputs):
            for column in g[:, n]:
                torch.bmm(column, a, out=row)
                total.addcmul_(row, row)

    def project(self, form: AnyForm, events: int) -> Any:
        if isinstance(form, Lookup):
            return Picked.of(*form.merged(), events)
        if isinstance(form, Outer) and form.shared == 1:
            g = form.g[:, :, 0]
            return form.a[:, 0].square(), g.square() if events == 1 else g
        if isinstance(form, Unit):
            return form.a[:, 0].square(), None
        return form.rows().square() if events == 1 else form.rows()

    def sensitivity(self) -> Float[Tensor, " p"]:
        return self.values.detach().abs().sqrt()

    def precision(self, scale: Float[Tensor, ""] | float, delta: Delta) -> "DiagonalPrecision":
        return DiagonalPrecision(scale * self.values, delta.vector.to(self.values))

    def dense(self) -> Float[Tensor, "p p"]:
        return self.values.diag()


def _products(
    g: Float[Tensor, "V N 1 G O"],
    other_g: Float[Tensor, "V N R G O"],
    a: Float[Tensor, "N 1 G I"],
    other_a: Float[Tensor, "N R G I"],
) -> Float[Tensor, "G O I"]:
    """Σ_n over pairs of a position with itself, counted once, and with others, counted twice; by views."""
    outputs = (g * other_g).sum(0)
    outputs[:, 1:] *= 2
    return torch.einsum("nrgo,nrgi->goi", outputs, a * other_a)


@dataclass(frozen=True, eq=False)
class DiagonalPrecision(Precision):
    """λ_p = signal_p + δ_p with signal = scale · g."""

    signal: Float[Tensor, " p"]
    delta: Float[Tensor, " p"]

    def __post_init__(self) -> None:
        least = self.values.detach().min() if self.signal.numel() else 1.0
        if not float(least) > 0:
            raise ValueError(
                f"the precision of a parameter would be {float(least):.3g} with this prior and temperature, as its "
                "variance was trained under a wider prior. Keep the prior and temperature of the training, use a prior "
                "of higher precision, or train again."
            )

    @cached_property
    def values(self) -> Float[Tensor, " p"]:
        """The eigenvalues λ."""
        return self.signal + self.delta

    def log_det_ratio(self) -> Float[Tensor, ""]:
        return (self.signal / self.delta).log1p().sum(dtype=torch.double)

    def effective_parameters(self) -> Float[Tensor, " p"]:
        return self.signal / self.values

    def multiply(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return self.values * v

    def solve(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return v / self.values

    def colour(self, z: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return z * self.values.rsqrt()

    def whiten(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return v * self.values.rsqrt()

    def variance(self) -> Float[Tensor, " p"]:
        return self._variance

    @cached_property
    def _variance(self) -> Float[Tensor, " p"]:
        return self.values.reciprocal()

    def contract(self, projected: Any, events: int) -> Float[Tensor, "N T E E"]:
        if isinstance(projected, Picked):
            return projected.grams(self._variance.unflatten(0, (projected.g.shape[-1], -1)), events)
        if isinstance(projected, tuple):
            a2, g = projected
            variances = self._variance.reshape(*a2.shape[1:2], -1, a2.shape[-1])  # (G, O, I)
            return weighted_grams(g, by_group(a2, variances.mT), events)
        if events == 1:
            return (projected @ self._variance).T[..., None, None]
        return super().contract(projected, events)
