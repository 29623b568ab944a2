"""The whole matrix by its rows: everything follows from their products, the neural tangent kernel."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.forms import Dense
from osculate.linalg import cholesky, eigh
from osculate.structures.blocks._base import Delta, Precision, grams
from osculate.structures.blocks.dense import DenseBlock
from osculate.structures.blocks.joint import Joint, JointRows
from osculate.structures.blocks.rows import ENTRIES, Pack, pick, size


@dataclass(frozen=True, eq=False)
class DualBlock(JointRows):
    """G by its rows, or as a matrix where that is smaller."""

    def gram(self, delta: Delta) -> Float[Tensor, "K K"]:
        """X diag(δ)⁻¹ Xᵀ."""
        v, n = self.count
        total = torch.zeros(v * n, v * n, dtype=torch.double, device=self.positions.device)
        if delta.by_tensor is None:
            return self.kernel(self.packs, self.packs, 1 / delta.vector.double(), False)
        inverse = 1 / delta.by_tensor.double()
        for number, each in self.tensor_grams():
            total = total + inverse[number] * each
        return total

    @cached_property
    def _primal(self) -> DenseBlock | None:
        """The matrix itself, where it is smaller than that of the products of the rows."""
        v, n = self.count
        if v * n <= len(self.positions) or self.mix:
            return None
        block = DenseBlock.zero(self.positions, self.dtype, self.positions.device)
        step = max(1, ENTRIES // (v * len(self.positions)))
        sizes = tuple(prod(rows.shape) for rows in self.rows)
        for start in range(0, n, step):
            part = slice(start, start + step)
            forms = [rows.unpacked(pick(rows.pack, part)) if rows.pack else None for rows in self.rows]
            block.accumulate(Dense(Joint(tuple(forms), sizes).rows()))
        block.finish()
        return block

    def project(self, form: Joint, events: int) -> Any:  # type: ignore[override]
        return self.packed(form) if self._primal is None else form.rows()

    def precision(self, scale: Float[Tensor, ""] | float, delta: Delta) -> Precision:
        if self._primal is not None:
            return self._primal.precision(scale, delta)
        return DualPrecision(self, torch.as_tensor(scale, dtype=torch.double, device=self.positions.device), delta)

    def dense(self) -> Float[Tensor, "p p"]:
        eye = torch.eye(len(self.positions), dtype=torch.double, device=self.positions.device)
        columns = self.times(eye)
        return (columns @ columns.T).to(self.dtype)


@dataclass(frozen=True, eq=False)
class DualPrecision(Precision):
    r"""Λ = scale · G + D by the products of rows: with X̂ = scale^{1/2} C X D^{-1/2} and I + X̂ X̂ᵀ = L Lᵀ,

    .. math:: x^\top \Lambda^{-1} y = x^\top D^{-1} y - (\hat X D^{-1/2} x)^\top (I + \hat X \hat X^\top)^{-1}
              (\hat X D^{-1/2} y)

    Differences are taken in double precision, in which they keep half of the digits for data that outweigh the prior
    by 10⁸.
    """

    block: DualBlock
    scale: Float[Tensor, ""]
    delta: Delta

    @cached_property
    def _vector(self) -> Float[Tensor, " p"]:
        return self.delta.vector.to(self.block.positions.device).double()

    @cached_property
    def _gram(self) -> Float[Tensor, "k k"]:
        """X̂ X̂ᵀ."""
        return self.scale * self.block.mixed(self.block.mixed(self.block.gram(self.delta)).mT)

    @cached_property
    def _cholesky(self) -> Float[Tensor, "k k"]:
        """L."""
        return cholesky(self._gram + torch.eye(len(self._gram)).to(self._gram))

    @cached_property
    def _weights(self) -> Float[Tensor, "K K"]:
        """scale · Cᵀ (I + X̂ X̂ᵀ)⁻¹ C, so that D − D Λ⁻¹ D = Xᵀ times this times X."""
        inverse = torch.cholesky_inverse(self._cholesky)
        return self.scale * self.block.unmixed(self.block.unmixed(inverse).mT)

    def log_det_ratio(self) -> Float[Tensor, ""]:
        return 2 * self._cholesky.diagonal().log().sum()

    def effective_parameters(self) -> Float[Tensor, " p"]:
        return self.block.diagonal(self._weights) / self._vector

    def effective_parameters_by_tensor(self, split: Callable[[Tensor], list[Tensor]]) -> list[Float[Tensor, ""]]:
        if self.delta.by_tensor is None:
            return super().effective_parameters_by_tensor(split)
        weights = self._weights
        totals = torch.zeros(len(self.delta.by_tensor), dtype=torch.double, device=weights.device)
        for number, each in self.block.tensor_grams():
            totals[number] += (weights * each).sum()
        totals = totals / self.delta.by_tensor.double()
        owners = [part.reshape(-1)[:1].tolist() for part in split(self.block.owners)]
        return [totals[number[0]] if number else totals.new_zeros(()) for number in owners]

    def _flat(self, verb: Callable[[Tensor], Tensor], v: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        return verb(v.double().reshape(-1, v.shape[-1])).reshape(v.shape).to(v.dtype)

    def multiply(self, v: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        block = self.block
        return self._flat(lambda u: self._vector * u + self.scale * block.transposed(block.times(u)), v)

    def _without(self, u: Float[Tensor, "S p"], matrix: Callable[[Tensor], Tensor]) -> Float[Tensor, "S p"]:
        """u − X̂ᵀ matrix(X̂ u)."""
        root = self._vector.sqrt()
        return u - self.scale * self.block.transposed(matrix(self.block.times(u / root))) / root

    def solve(self, v: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        root = self._vector.sqrt()

        def solved(u: Tensor) -> Tensor:
            return self._without(u / root, lambda c: torch.cholesky_solve(c.T, self._cholesky).T) / root

        return self._flat(solved, v)

    @cached_property
    def _root(self) -> Float[Tensor, "k k"]:
        """Q with (I + X̂ᵀX̂)^{-1/2} = I − X̂ᵀ Q X̂."""
        values, vectors = eigh(self._gram.detach())
        root = (1 + values).sqrt()
        return vectors / (root * (1 + root)) @ vectors.T  # (1 − (1 + θ)^{-1/2}) / θ, stable for small θ

    def colour(self, z: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        return self._flat(lambda u: self._without(u, lambda c: c @ self._root) / self._vector.sqrt(), z)

    def whiten(self, v: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        return self._flat(lambda u: self._without(u / self._vector.sqrt(), lambda c: c @ self._root), v)

    def variance(self) -> Float[Tensor, " p"]:
        left = (1 - self.effective_parameters()).clamp(min=torch.finfo(torch.double).eps)
        return (left / self._vector).to(self.block.dtype)

    def _halves(self, packs: list[Pack | None]) -> Float[Tensor, "L k"]:
        """L⁻¹ X̂ D^{-1/2} x for the rows x of some data."""
        right = self.block.mixed(self.block.kernel(packs, self.block.packs, 1 / self._vector, self._separable))
        return torch.linalg.solve_triangular(self._cholesky, self.scale.sqrt() * right.T, upper=False).T

    @property
    def _separable(self) -> bool:
        return self.delta.by_tensor is not None

    def contract(self, projected: Any, events: int) -> Float[Tensor, "N T E E"]:
        v, n = size(next(pack for pack in projected if pack))
        step = max(1, ENTRIES // max(1, v * len(self._gram)))
        parts = [
            self._contract(
                [None if pack is None else pick(pack, slice(start, start + step)) for pack in projected], events
            )
            for start in range(0, n, step)
        ]
        return torch.cat(parts)

    def _contract(self, packs: list[Pack | None], events: int) -> Float[Tensor, "N T E E"]:
        own = self.block.own_kernel(packs, 1 / self._vector, self._separable, events)
        shape = size(next(pack for pack in packs if pack is not None))
        left = own - grams(self._halves(packs).unflatten(0, shape), events)
        floor = torch.finfo(torch.double).eps * own.diagonal(dim1=-2, dim2=-1)
        lift = (floor - left.diagonal(dim1=-2, dim2=-1)).clamp(min=0)  # rounding may leave less than nothing
        return (left + lift.diag_embed()).to(self.block.dtype)

    def covariance(self, form: Joint) -> Float[Tensor, "K K"]:  # type: ignore[override]
        packs = self.block.packed(form)
        halves = self._halves(packs)
        left = self.block.kernel(packs, packs, 1 / self._vector, self._separable) - halves @ halves.T
        v, n = size(next(pack for pack in packs if pack))
        return left.reshape(v, n, v, n).permute(1, 0, 3, 2).reshape(v * n, v * n).to(self.block.dtype)
