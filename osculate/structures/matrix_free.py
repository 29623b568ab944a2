"""The whole matrix without building it: products by passes over the data."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.columns import Hessian
from osculate.curvature.engine import Observation
from osculate.curvature.plan import BlockSpec
from osculate.registry import choose
from osculate.structures import blocks
from osculate.structures._base import Curvature, PosteriorPrecision, Structure
from osculate.structures.low_rank import PRODUCT

#: Eigenvalues of the preconditioner for each additional test vector.
OVERSAMPLING = 5


@dataclass(frozen=True, eq=False)
class EstimatedPrecision(PosteriorPrecision):
    """Λ whose log determinant and variances are averages over random probes."""

    @property
    def _part(self) -> blocks.MatrixFreePrecision:
        (part,) = self.parts
        part = part.inner if isinstance(part, blocks.ColouredPrecision) else part
        assert isinstance(part, blocks.MatrixFreePrecision)
        return part

    def sample(self, n: int, generator: torch.Generator | None, like: Tensor) -> Float[Tensor, "n P"]:
        structure = self.curvature.structure
        assert isinstance(structure, MatrixFree)
        plain = structure.samples_by == "lanczos" and not self._part.differentiated
        if plain or isinstance(self.parts[0], blocks.ColouredPrecision):
            return super().sample(n, generator, like)
        (block,), draws = self.curvature.blocks, like.new_zeros(n, self.space.size)
        found = self._part.optimised(*self._part.targets(n, generator)).to(like)
        return draws.index_copy(1, block.positions, found)

    def log_det_error(self) -> Float[Tensor, ""]:
        """The standard error of the log determinant; that of the log evidence is half of it."""
        return self._part.log_determinant.standard_error

    def variance_error(self) -> Float[Tensor, " P"]:
        """The standard error of each parameter's variance."""
        return self._assembled([self._part.variances.standard_error])


@dataclass(frozen=True)
class MatrixFree(Structure):
    r"""Every entry of G, and none in memory: Λ v is a pass over the data.

    Solves are preconditioned conjugate gradients, samples are Λ^{-1/2} z by Lanczos, log determinants stochastic
    Lanczos quadrature and variances Hutchinson averages, with probes that are fixed by the seed: the same posterior
    gives the same answers. The preconditioner is that of ``low_rank``; where the sketch is exact (N·C or P up to the
    rank), so are the others. ``q.precision.log_det_error()`` and ``.variance_error()`` give standard errors.

    The batches are kept as they were read, with their augmentations; a pair (X, Y) is not copied. Such a posterior
    cannot be saved.

    Args:
        tolerance: Bound on relative residuals of solves and samples; None for the fourth root of the rounding unit
            (2e-2 in single precision, 1e-4 in double; 3e-2 with "sdd"). The error of a functional variance is about its
            square.
        max_products: Largest number of passes over the data for one solve.
        probes: Number of random vectors for the log determinant and the variances.
        rank: Number of eigenvalues of the preconditioner.
        seed: Seed of the probes and the test vectors.
        samples_by: "lanczos" (a function of white noise in parameter space; memory for one vector a product and
            sample), or "optimise": sample-then-optimise, which solves for each sample the least-squares problem of
            the linearised network with random targets, by the same conjugate gradients; memory for a few vectors a
            sample, for curvatures that have a root (not "hessian"). [antoran2023]
        solver: "cg" (conjugate gradients with the preconditioner; each step is a pass over the data), or "sdd":
            stochastic dual descent, whose steps use a minibatch, for any number of data; it takes no preconditioner,
            and its passes grow with the condition number where those of conjugate gradients grow with its root. For
            data so many that only a few passes are possible, and for answers to two digits. [lin2024]

    Raises:
        ValueError: a number that is not positive, an unknown way to sample, or the full Hessian with "optimise".

    Cost: a fit takes 1.2 · rank products with each batch, and as many vectors of memory; a prediction as many
    passes over the data as conjugate gradients need, each with all columns of a chunk. For more than a few predictions
    samples are cheaper (``osc.sample_functions``), and a larger rank saves passes.

    >>> X, Y = torch.randn(30, 2), torch.randint(3, (30,))
    >>> q = osc.laplace(nn.Linear(2, 3), osc.likelihoods.Categorical(), (X, Y), structure="matrix_free", prior=1.0)
    >>> q.precision.solve(q.mean).shape
    torch.Size([9])
    """

    name: ClassVar[str] = "matrix_free"
    joint: ClassVar[bool] = True
    by_products: ClassVar[bool] = True
    takes_correlations: ClassVar[bool] = True
    smaller: ClassVar[str] = "Take a smaller rank, osc.structures.MatrixFree(rank=…), use structure='diag',"
    resumes: ClassVar[bool] = False
    precision_class: ClassVar[type[PosteriorPrecision]] = EstimatedPrecision
    unstorable: ClassVar[str] = (
        "a posterior with structure='matrix_free' cannot be saved: its curvature is the data themselves, which a file "
        "of the posterior would have to hold. Save one with structure='low_rank' (the leading directions) or 'kron', "
        "or save the network and fit again."
    )
    tolerance: float | None = None
    max_products: int = 500
    probes: int = 32
    rank: int = 100
    seed: int = 0
    samples_by: str = "lanczos"
    solver: str = "cg"

    def __post_init__(self) -> None:
        choose("way to sample", self.samples_by, ("lanczos", "optimise"))
        choose("solver", self.solver, ("cg", "sdd"))
        for field in ("tolerance", "max_products", "probes", "rank"):
            if (value := getattr(self, field)) is not None and not value > 0:
                raise ValueError(f"MatrixFree needs a positive {field}, got {value}.")

    def units(self, columns: int) -> float:
        """A product with each test vector of the preconditioner."""
        return PRODUCT * (self.rank + self.rank // OVERSAMPLING)

    def bytes_needed(self, specs: tuple[BlockSpec, ...], itemsize: int) -> int:
        """Test vectors, their products and eigenvectors."""
        return 3 * (self.rank + self.rank // OVERSAMPLING) * super().bytes_needed(specs, itemsize)

    def block(self, spec: BlockSpec, dtype: torch.dtype, device: torch.device) -> blocks.Block:
        """An empty list of batches, and the sketch of a preconditioner."""
        accuracy = blocks.Accuracy(self.tolerance, self.max_products, self.probes, self.seed)
        vectors = self.rank + self.rank // OVERSAMPLING
        sketch = blocks.LowRankBlock.zero(spec.positions, self.rank, vectors, self.seed, dtype, device)
        return (blocks.StochasticBlock if self.solver == "sdd" else blocks.MatrixFreeBlock).empty(sketch, accuracy)

    def add(self, curvature: Curvature, observation: Observation, pass_index: int = 0) -> Tensor:
        """Keep one batch, and multiply it with the test vectors."""
        if isinstance(observation.kind, Hessian) and (self.samples_by == "optimise" or self.solver == "sdd"):
            raise ValueError(
                "samples_by='optimise' and solver='sdd' need a root of the curvature, and the full Hessian may be "
                "indefinite. Use samples_by='lanczos' and solver='cg', or curvature='ggn'."
            )
        batch = blocks.Batch.of(observation)
        (block,) = curvature.blocks
        assert isinstance(block, blocks.MatrixFreeBlock)
        block.batches.append(batch)
        if not isinstance(observation.kind, Hessian):  # an indefinite matrix gives no preconditioner
            block.add_product(batch.product)
        return batch.f
