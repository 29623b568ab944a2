"""A block known by its products with fixed vectors, from which its largest eigenvalues follow."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.forms import AnyForm, Form, rows_in_parts
from osculate.linalg import DiagonalPlusLowRank, nystrom, signs
from osculate.structures.blocks._base import Block, Delta, Precision, grams

#: Entries of the rows that are formed at once.
ENTRIES = 2**22
#: Blocks of up to this many parameters are multiplied with unit vectors.
SMALL = 64


@dataclass(frozen=True, eq=False)
class LowRankBlock(Block):
    r"""The sketch Y = G Ω with k test vectors Ω: k · p memory. It adds, since Ω depends on the seed alone.

    The test vectors are random signs, which are the same in every floating type and on every machine, and unit vectors
    where 2k ≥ p: Y is then G itself.

    Attributes:
        rank: number of eigenvalues that are kept.
        seed: seed of the test vectors.
        sketch: Y.
    """

    whole_rows: ClassVar[bool] = True
    positions: Tensor
    sketch: Float[Tensor, "k p"]
    rank: int
    seed: int

    @classmethod
    def zero(
        cls, positions: Tensor, rank: int, vectors: int, seed: int, dtype: torch.dtype, device: torch.device
    ) -> "LowRankBlock":
        """No data yet; ``vectors`` is how many test vectors are asked for."""
        flat = positions.reshape(-1).to(device)
        count = len(flat) if len(flat) <= max(2 * vectors, SMALL) else vectors
        return cls(flat, torch.zeros(count, len(flat), dtype=dtype, device=device), rank, seed)

    @cached_property
    def tests(self) -> Float[Tensor, "k p"]:
        """Ω, one vector a row."""
        count, size = self.sketch.shape
        if count == size:
            return torch.eye(size, dtype=self.sketch.dtype, device=self.sketch.device)
        return signs(count, size, torch.Generator().manual_seed(self.seed), self.sketch.dtype, self.sketch.device)

    def tensors(self) -> dict[str, Tensor]:
        return {"sketch": self.sketch}

    def with_tensors(self, tensors: dict[str, Tensor]) -> "LowRankBlock":
        return replace(self, sketch=tensors["sketch"])

    def accumulate(self, form: Form) -> None:
        for rows in rows_in_parts(form, ENTRIES):
            flat = rows.flatten(0, 1)
            self.sketch.add_((self.tests @ flat.T) @ flat)

    def add_product(self, product: Callable[[Tensor], Tensor]) -> None:
        """Add one more part of the matrix, given by its products with vectors in the order of θ; in place."""
        self.sketch.add_(self.in_block_order(product, self.tests))

    def in_block_order(self, product: Callable[[Tensor], Tensor], v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        """A product of vectors in the order of θ, for vectors in the order of the block."""
        theta = torch.empty_like(v)
        theta[:, self.positions] = v
        return product(theta)[:, self.positions]

    def project(self, form: AnyForm, events: int) -> Any:
        return form.rows()

    @cached_property
    def spectrum(self) -> tuple[Float[Tensor, " r"], Float[Tensor, "r p"]]:
        """The largest eigenvalues, in double precision, and their eigenvectors as rows."""
        return nystrom(self.tests, self.sketch, self.rank)

    def matrix(self, scale: Float[Tensor, ""] | float, delta: Delta) -> DiagonalPlusLowRank:
        """scale · Ĝ + diag(δ)."""
        values, vectors = self.spectrum
        roots = (scale * values).sqrt().to(vectors)
        return DiagonalPlusLowRank(delta.vector.to(vectors), roots.unsqueeze(-1) * vectors)

    def precision(self, scale: Float[Tensor, ""] | float, delta: Delta) -> Precision:
        return LowRankPrecision(self.matrix(scale, delta))

    def dense(self) -> Float[Tensor, "p p"]:
        values, vectors = self.spectrum
        return (vectors.T * values.to(vectors)) @ vectors


@dataclass(frozen=True, eq=False)
class LowRankPrecision(Precision):
    """Λ = scale · Ĝ + diag(δ), with a δ of any kind: the prior stays of full rank."""

    matrix: DiagonalPlusLowRank

    def log_det_ratio(self) -> Float[Tensor, ""]:
        return self.matrix.log_det_ratio()

    def effective_parameters(self) -> Float[Tensor, " p"]:
        return self.matrix.effective_parameters()

    def multiply(self, v: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        return self.matrix.multiply(v)

    def solve(self, v: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        return self.matrix.solve(v)

    def colour(self, z: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        return self.matrix.colour(z)

    def whiten(self, v: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        return self.matrix.whiten(v)

    def variance(self) -> Float[Tensor, " p"]:
        return self.matrix.variance()

    def contract(self, projected: Any, events: int) -> Float[Tensor, "N T E E"]:
        return grams(self.matrix.halves(projected), events)
