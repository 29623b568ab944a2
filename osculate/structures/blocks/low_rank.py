"""A block known by its products with fixed vectors, from which its largest eigenvalues follow."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.forms import Form
from osculate.linalg import DiagonalPlusLowRank, nystrom, signs
from osculate.structures.blocks._base import Block, Delta, Precision, grams
from osculate.structures.blocks.coloured import ColouredPrecision

#: Number of random vectors for variances with a correlated prior.
PROBES = 32
#: Largest block that is multiplied with unit vectors instead of random ones.
SMALL = 64


@dataclass(frozen=True, eq=False)
class LowRankBlock(Block):
    r"""The sketch Y = G Ω with k test vectors Ω: k · p memory. It adds, since Ω depends on the seed alone.

    The test vectors are random signs, which are the same in every floating type and on every machine, and unit vectors
    where 2k ≥ p: Y is then G itself.

    Attributes:
        rank: Number of eigenvalues that are kept.
        seed: Seed of the test vectors.
        sketch: Y.
    """

    state: ClassVar[tuple[str, ...]] = ("sketch",)
    whole_rows: ClassVar[bool] = True
    positions: Tensor
    sketch: Float[Tensor, "k p"]
    rank: int
    seed: int

    @classmethod
    def zero(
        cls, positions: Tensor, rank: int, vectors: int, seed: int, dtype: torch.dtype, device: torch.device
    ) -> "LowRankBlock":
        """An empty block with this number of test vectors."""
        flat = positions.reshape(-1).to(device)
        count = len(flat) if len(flat) <= max(2 * vectors, SMALL) else vectors
        return cls(flat, torch.zeros(count, len(flat), dtype=dtype, device=device), rank, seed)

    @cached_property
    def tests(self) -> Float[Tensor, "k p"]:
        """Ω, one vector per row."""
        count, size = self.sketch.shape
        if count == size:
            return torch.eye(size, dtype=self.sketch.dtype, device=self.sketch.device)
        return signs(count, size, torch.Generator().manual_seed(self.seed), self.sketch.dtype, self.sketch.device)

    def accumulate(self, form: Form) -> None:
        rows = form.rows().flatten(0, 1)
        self.sketch.add_((self.tests @ rows.T) @ rows)

    def add_product(self, product: Callable[[Tensor], Tensor]) -> None:
        """Add a matrix, given by its products with vectors in the order of θ, in place."""
        self.sketch.add_(self.in_block_order(product, self.tests))

    def in_block_order(self, product: Callable[[Tensor], Tensor], v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        """A product of vectors in the order of θ, for vectors in the order of the block."""
        theta = torch.empty_like(v)
        theta[:, self.positions] = v
        return product(theta)[:, self.positions]

    @cached_property
    def spectrum(self) -> tuple[Float[Tensor, " r"], Float[Tensor, "r p"]]:
        """The largest eigenvalues, in double precision, and their eigenvectors as rows."""
        return nystrom(self.tests, self.sketch, self.rank)

    def sensitivity(self) -> Float[Tensor, " p"]:
        """The largest entry of each row of Y, at most √G_pp times the same for all: G is positive semi-definite."""
        return self.sketch.detach().double().abs().amax(0)

    def precision(self, scale: Float[Tensor, ""] | float, delta: Delta) -> Precision:
        values, vectors = self.spectrum
        factor = (scale * values).sqrt().to(vectors).unsqueeze(-1) * vectors
        if delta.correlated is None:
            return LowRankPrecision(delta.vector.to(vectors), factor)
        inner = LowRankPrecision(torch.ones_like(vectors[0]), delta.coloured(factor))
        return ColouredPrecision(inner, delta, lambda v: (v @ factor.T) @ factor, self.probes())

    def probes(self, count: int = PROBES) -> Float[Tensor, "S p"]:
        """Random signs, none of them test vectors."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        return signs(count, self.sketch.shape[1], generator, self.sketch.dtype, self.sketch.device)

    def dense(self) -> Float[Tensor, "p p"]:
        values, vectors = self.spectrum
        return (vectors.T * values.to(vectors)) @ vectors


class LowRankPrecision(DiagonalPlusLowRank, Precision):
    """Λ = scale · Ĝ + diag(δ), with any δ: the prior keeps its full rank."""

    def contract(self, projected: Any, events: int) -> Float[Tensor, "N T E E"]:
        return grams(self.halves(projected), events)
