"""A matrix-free block whose solves are stochastic dual descent: a step forms the rows of a minibatch alone."""

from dataclasses import dataclass
from functools import cached_property
from itertools import repeat

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.linearisation import Linearisation
from osculate.curvature.products import OutputMap, activations
from osculate.linalg import DiagonalPlusLowRank, RowBlocks, dual_descent
from osculate.memory import budget, even_parts
from osculate.structures.blocks._base import Delta
from osculate.structures.blocks.matrix_free import NUMBERS, Batch, MatrixFreeBlock, MatrixFreePrecision

#: Largest block of dual coordinates, and least number of blocks: momentum averages over ten.
DATA, BLOCKS = 128, 16
#: Vectors, in dual and primal coordinates, that a solve holds for each right-hand side.
MEMORY = 8
#: Copies of its activations that the graphs of a linearised network hold.
COPIES = 6
#: Default bound on relative residuals.
TOLERANCE = 3e-2


@dataclass(frozen=True, eq=False)
class StochasticBlock(MatrixFreeBlock):
    """The data, passed over in small random blocks."""

    @cached_property
    def parts(self) -> list[tuple[Batch, Tensor]]:
        """All data in blocks of nearly equal size, drawn once from the batches."""
        generator, found = torch.Generator().manual_seed(self.accuracy.seed), []
        most = min(DATA, -(-sum(len(batch.f) for batch in self._present()) // BLOCKS))
        for batch in self._present():
            order = torch.randperm(len(batch.f), generator=generator).to(batch.f.device)
            found += [(batch, order[part]) for part in even_parts(len(order), most)]
        return found

    @cached_property
    def activations(self) -> int:
        """The bytes that a forward pass keeps for one datum."""
        batch = self._present()[0]
        return activations(batch.network, batch.observation.x)

    @cached_property
    def _keeps(self) -> bool:
        """True if the recorded passes of all data fit into the memory that all products share."""
        first = self.batches[0]
        total = sum(len(batch.f) for batch in self.batches) * COPIES * self.activations
        return total <= budget(None, first.f.device, total)

    @cached_property
    def _kept(self) -> dict[int, tuple[Linearisation, OutputMap]]:
        return {}

    def at(self, block: int) -> tuple[Linearisation, OutputMap]:
        """The network around its mode for one block, and u -> Λ u for its outputs; the last one is cached, or all."""
        found = self._kept.get(block)
        if found is None:  # another thread may clear the cache at any moment
            if not self._keeps:
                self._kept.clear()
            batch, part = self.parts[block]
            found = self._kept[block] = batch.at(part)
        return found

    def precision(self, scale: Float[Tensor, ""] | float, delta: Delta) -> "StochasticPrecision":
        return StochasticPrecision(*vars(super().precision(scale, delta)).values())


@dataclass(frozen=True, eq=False)
class StochasticPrecision(MatrixFreePrecision):
    r"""Λ = scale · G + D whose solves are the dual problem's: with X̂ = scale^{1/2} Sᵀ J D^{-1/2},

    .. math:: D^{1/2} \Lambda^{-1} D^{1/2} = (I + \hat X^\top \hat X)^{-1}
              = I - \hat X^\top (I + \hat X \hat X^\top)^{-1} \hat X

    Its coordinates are those of output space, by blocks of data: with Λ_n = S_n S_nᵀ those of I + X Yᵀ are S_n times
    those of I + X̂ X̂ᵀ, where X = scale · Λ J D^{-1/2} and Yᵀ = D^{-1/2} Jᵀ.
    """

    curvature: StochasticBlock

    @cached_property
    def frame(self) -> DiagonalPlusLowRank:
        """D alone."""
        return DiagonalPlusLowRank(self.base.diagonal, self.base.factor[:0])

    def _chunks(self, block: int, vectors: int) -> list[slice]:
        """Slices of the vectors that are processed at once."""
        batch, part = self.curvature.parts[block]
        numbers = 2 * batch.network.space.size + len(part) * self.curvature.activations
        return even_parts(vectors, batch.observation.memory // (2 * batch.f.itemsize * numbers))

    def _rows(self, block: int, w: Float[Tensor, "S p"]) -> Float[Tensor, "S n"]:
        """RowBlocks of X, times each vector."""
        at, output_map = self.curvature.at(block)
        theta = torch.empty_like(w)
        theta[:, self.curvature.positions] = self.frame.colour(w)
        found = [float(self.scale) * output_map(at.jvp(theta[chunk])) for chunk in self._chunks(block, len(w))]
        return torch.cat(found).flatten(1).detach()

    def _columns(self, block: int, c: Float[Tensor, "S n"]) -> Float[Tensor, "S p"]:
        """Columns of Yᵀ, times each vector."""
        at, _ = self.curvature.at(block)
        found = [at.vjp(c[chunk].reshape(-1, *at.f.shape)) for chunk in self._chunks(block, len(c))]
        return self.frame.whiten(torch.cat(found)[:, self.curvature.positions])

    @torch.no_grad()
    def _solution(self, right: Tensor, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        sizes = [len(part) * batch.f[0].numel() for batch, part in self.curvature.parts]
        step = max(1, NUMBERS // (MEMORY * (sum(sizes) + right.shape[-1])))
        found = [
            dual_descent(
                RowBlocks(sizes, self._rows, self._columns),
                chunk,
                start=first,
                generator=torch.Generator().manual_seed(self.curvature.accuracy.seed),
                tolerance=TOLERANCE if self.curvature.accuracy.tolerance is None else self.curvature.accuracy.tolerance,
                max_passes=self.curvature.accuracy.max_products,
            ).x
            for chunk, first in zip(
                right.split(step), repeat(None) if start is None else start.split(step), strict=False
            )
        ]
        x = torch.cat(found)
        product = self.frame.whiten(self.curvature.product(self.frame.colour(x)))
        return x, right - x - float(self.scale) * product
