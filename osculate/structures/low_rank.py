"""The largest eigenvalues of the whole matrix, from one pass."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from osculate.curvature.columns import Hessian
from osculate.curvature.engine import Observation
from osculate.curvature.plan import BlockSpec
from osculate.structures._base import Curvature, Structure
from osculate.structures.blocks import Batch, Block, LowRankBlock

#: Units of a product with the curvature: about three forward passes and one backward pass without weight gradients.
PRODUCT = 4 / 3


@dataclass(frozen=True)
class LowRank(Structure):
    r"""The leading eigenvectors of G over all parameters together, beside a prior of full rank.

    .. math:: \Lambda = \hat G + \operatorname{diag}(\delta), \qquad
              \hat G = U \operatorname{diag}(\lambda) U^\top \preceq G

    Each batch is multiplied with fixed test vectors, and the products add: one pass over any number of data. If the
    data span at most ``rank`` directions (N·C ≤ rank), or the network has at most so many parameters, it equals
    ``full`` up to rounding: eigenvalues below about 1e-6 of the largest are lost in single precision. Other
    directions keep the prior: they come out too uncertain, never too certain. [tropp2017]

    Args:
        rank: Number of eigenvalues that are kept.
        oversampling: Number of test vectors beyond the rank: more make the leading eigenvalues more exact.
        seed: Seed of the test vectors.

    Raises:
        ValueError: a rank that is not positive, or a negative oversampling.

    Cost: rank + oversampling products with each batch (about three forward passes and one backward pass each), and as
    many vectors of memory, three times.

    >>> X, Y = torch.randn(30, 2), torch.randint(3, (30,))
    >>> five = osc.structures.LowRank(rank=5)
    >>> q = osc.laplace(nn.Linear(2, 3), osc.likelihoods.Categorical(), (X, Y), structure=five)
    >>> q.structure.blocks[0].spectrum[0].shape
    torch.Size([5])
    """

    name: ClassVar[str] = "low_rank"
    joint: ClassVar[bool] = True
    by_products: ClassVar[bool] = True
    takes_correlations: ClassVar[bool] = True
    smaller: ClassVar[str] = "Take a smaller rank, osc.structures.LowRank(rank=…), use structure='diag',"
    rank: int = 100
    oversampling: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rank < 1 or self.oversampling < 0:
            raise ValueError(
                f"LowRank needs a positive rank and an oversampling of at least 0, got rank={self.rank}, "
                f"oversampling={self.oversampling}."
            )

    def units(self, columns: int) -> float:
        """A product with each test vector."""
        return PRODUCT * (self.rank + self.oversampling)

    def bytes_needed(self, specs: tuple[BlockSpec, ...], itemsize: int) -> int:
        """Test vectors, their products and eigenvectors."""
        return 3 * (self.rank + self.oversampling) * super().bytes_needed(specs, itemsize)

    def block(self, spec: BlockSpec, dtype: torch.dtype, device: torch.device) -> Block:
        """One sketch of the whole matrix."""
        return LowRankBlock.zero(spec.positions, self.rank, self.rank + self.oversampling, self.seed, dtype, device)

    def add(self, curvature: Curvature, observation: Observation, pass_index: int = 0) -> Tensor:
        """Multiply one batch with the test vectors."""
        batch = Batch.of(observation)
        if isinstance(observation.kind, Hessian):  # it has no columns, and raises
            observation.columns(batch.f)
        (block,) = curvature.blocks
        assert isinstance(block, LowRankBlock)
        block.add_product(batch.product)
        return batch.f
