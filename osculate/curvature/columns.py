"""The columns that are pulled back through the network, for each kind of curvature."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from osculate.likelihoods import Likelihood
from osculate.randomness import Keyed

#: The error message for a network that recomputes activations: without a graph, by other operations, or at other
#: parameters.
RECOMPUTES = (
    "the network recomputes activations (torch.utils.checkpoint) in a way that torch does not allow for derivatives by "
    "chosen parameters: pass use_reentrant=False, which serves fits and predictions at the mode apart from "
    "structure='approx_diag', or switch it off, a Hugging Face model's with model.gradient_checkpointing_disable()."
)


#: Number of columns of a datum that is never too many.
MANY = 10_000


@dataclass(frozen=True)
class Columns:
    """V columns (N, *C) in output space, made in chunks.

    Attributes:
        count: V.
        part: A function that returns columns start to stop, (stop − start, N, *C).
        group: Number of columns that belong together; chunks end at multiples of it.
        identity: True if the columns are the unit vectors of the outputs, in the order of the outputs.
    """

    count: int
    part: Callable[[int, int], Tensor]
    group: int = 1
    identity: bool = False

    def mixed(self, step: int) -> Float[Tensor, "1 N *C"]:
        """One random combination of all columns, made of ``step`` at a time: zero only where each of them is zero."""
        weights = torch.randn(1, self.count, generator=torch.Generator().manual_seed(0))
        parts = [slice(start, min(self.count, start + step)) for start in range(0, self.count, step)]
        products = ((weights[:, p], self.part(p.start, p.stop)) for p in parts)
        return reduce(torch.add, (torch.tensordot(w.to(columns), columns, 1) for w, columns in products))

    @classmethod
    def of(cls, columns: Float[Tensor, "V N *C"]) -> "Columns":
        """Columns from a tensor that holds all of them."""
        return cls(len(columns), lambda start, stop: columns[start:stop])

    @classmethod
    def local(cls, likelihood: Likelihood, f: Tensor, y: Tensor) -> "Columns":
        """The columns of a root of Λ, which is block diagonal over T positions, computed on demand.

        Each is a column of the root of one position's block, and zero at all other positions: T·V in all.
        """
        count, local = likelihood.local_columns(f, y)
        t = likelihood.split(f).shape[1]
        if t == 1:
            return cls(count, lambda start, stop: likelihood.merge(local(start, stop), f.shape))

        def part(start: int, stop: int) -> Tensor:
            index = torch.arange(start, stop, device=f.device)
            first, where = start // t, index % t
            root = local(first, (stop - 1) // t + 1)
            columns = root.new_zeros(len(index), *root.shape[1:])
            each = torch.arange(len(index), device=f.device)
            columns[each, :, where] = root[index // t - first, :, where]
            return likelihood.merge(columns, f.shape)

        return cls(count * t, part)

    @classmethod
    def units(cls, f: Tensor, group: int, likelihood: Likelihood | None = None) -> "Columns":
        """One column for each of c outputs, so that the rows are those of the Jacobian.

        Args:
            f: Outputs (N, *C).
            group: Number of outputs that belong together.
            likelihood: Likelihood that orders the outputs position by position; without one they keep the order of f.
        """
        size = f[0].numel()

        def part(start: int, stop: int) -> Tensor:
            columns = f.new_zeros(stop - start, size)
            columns[torch.arange(stop - start), torch.arange(start, stop)] = 1
            if likelihood is None:
                columns = columns.reshape(-1, 1, *f.shape[1:])
            else:
                columns = likelihood.merge(columns.reshape(stop - start, 1, -1, group), (1, *f.shape[1:]))
            return columns.expand(-1, len(f), *f.shape[1:])

        in_order = f.ndim == 2 and group in (1, size)  # not so for pairs of outputs that are apart
        return cls(size, part, group, likelihood is None or in_order)


def pull(f: Tensor, inputs: list, columns: Tensor, graph: bool = False) -> list[Tensor | None]:
    """∂(columns · f)/∂inputs for all columns (V, N, *C) at once: a list of (V, *input).

    Args:
        f: Outputs (N, *C).
        inputs: Tensors or edges of the graph that leads to f.
        columns: The columns.
        graph: Record the graph of the result, for derivatives of it.
    """
    if not inputs:
        return []
    options: dict[str, bool] = {"allow_unused": True, "retain_graph": True, "create_graph": graph}
    if len(columns) > 1:
        try:
            return list(torch.autograd.grad(f, inputs, columns, is_grads_batched=True, **options))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # an operation whose backward cannot be batched: one column at a time
            pass
    try:
        each = [torch.autograd.grad(f, inputs, c, **options) for c in columns]
    except CheckpointError as error:
        raise ValueError(RECOMPUTES) from error
    return [None if parts[0] is None else torch.stack(parts) for parts in zip(*each, strict=True)]


class Kind(ABC):
    """A curvature matrix as Σ_n Σ_v (J_nᵀ s_nv)(J_nᵀ s_nv)ᵀ for columns s_nv in output space."""

    name: ClassVar[str]
    #: Columns of a datum up to which they are computed without a question.
    limit: int = MANY

    @property
    def random(self) -> bool:
        """True if columns are drawn, from ``generator``."""
        return hasattr(self, "generator")

    def keyed(self, keys: Int[Tensor, " N"]) -> "Kind":
        """The same kind for a batch with these keys, by which random columns are drawn."""
        return replace(self, generator=Keyed(keys))  # type: ignore[type-var]

    def part(self, rows: slice | Tensor) -> "Kind":
        """The same kind for a part of the batch, whose random columns are those within the batch."""
        source = getattr(self, "generator", None)
        if not isinstance(source, Keyed):
            return self
        return self.keyed(source.keys[rows if isinstance(rows, slice) else rows.cpu()])

    @abstractmethod
    def columns(self, likelihood: Likelihood, f: Tensor, y: Tensor) -> Columns:
        """The columns for outputs f (N, *C) and targets y."""

    def expected(self, outputs: int) -> int:
        """The approximate number of columns for this number of outputs."""
        return outputs

    def fewer(self) -> str:
        """A sentence on what to do where these are too many columns."""
        return "Use curvature='fisher', or structure='approx_diag'."


@dataclass(frozen=True)
class GGN(Kind):
    r"""The exact generalised Gauss–Newton matrix G = Σ_n J_nᵀ Λ_n J_n: as many columns as Λ has rank.

    Args:
        limit: The number of columns of a datum from which a pass that would take very long is refused.
    """

    name: ClassVar[str] = "ggn"
    limit: int = field(default=MANY, metadata={"later": True})

    def columns(self, likelihood: Likelihood, f: Tensor, y: Tensor) -> Columns:
        """The columns of a root of Λ, position by position."""
        return Columns.local(likelihood, f, y)

    def fewer(self) -> str:
        """The kinds and structures without a column for each output, and the way to insist."""
        return (
            "Use curvature='fisher' (one for each datum), or structure='approx_diag' or 'low_rank', which need no "
            "column for each output; to compute them all the same, pass curvature=osc.curvature.GGN(limit=10**9)."
        )


@dataclass(frozen=True)
class Directions(Kind):
    r"""The part of G in some directions u_v in the space of all outputs of a datum: s_nv = Λ_n^{1/2} u_v.

    Args:
        vectors: u_v, (V, C), for outputs that are independent given f.
    """

    name: ClassVar[str] = "directions"
    vectors: Float[Tensor, "V C"]

    def columns(self, likelihood: Likelihood, f: Tensor, y: Tensor) -> Columns:
        """The directions in units of the noise of each output."""
        vectors = self.vectors.to(f)

        def part(start: int, stop: int) -> Tensor:
            rows = vectors[start:stop].reshape(-1, 1, *f.shape[1:])
            return rows * likelihood.precision(f, y).sqrt()  # type: ignore[attr-defined]

        return Columns(len(vectors), part)

    def expected(self, outputs: int) -> int:
        """V."""
        return len(self.vectors)


@dataclass(frozen=True)
class Fisher(Kind):
    r"""The Fisher information estimated with labels drawn from the model; its expectation is the GGN.

    In a fit, the labels of a datum follow from a seed and its number in the data, in every pass the same: they depend
    neither on batches and ``memory`` nor on the processes that share the data.

    Args:
        samples: Labels drawn for each datum.
        generator: Source of the seed, one number for each fit.

    Raises:
        ValueError: ``samples`` is not positive.
    """

    name: ClassVar[str] = "fisher"
    samples: int = 1
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"the Fisher needs at least one sampled label, got samples={self.samples}.")

    def columns(self, likelihood: Likelihood, f: Tensor, y: Tensor) -> Columns:
        """Scores of sampled labels."""
        return Columns.of(likelihood.sampled_root(f, y, self.samples, self.generator))

    def expected(self, outputs: int) -> int:
        """One for each sample."""
        return self.samples


@dataclass(frozen=True)
class EmpiricalFisher(Kind):
    r"""The empirical Fisher Σ_n ∇log p(y_n|f_n) ∇log p(y_n|f_n)ᵀ, with the labels of the data.

    One column. It is not an estimate of the GGN: where the network fits its labels, it vanishes. [kunstner2019]
    """

    name: ClassVar[str] = "empirical_fisher"

    def columns(self, likelihood: Likelihood, f: Tensor, y: Tensor) -> Columns:
        """The scores at the labels of the data."""
        return Columns.of(likelihood.score(f, y).unsqueeze(0))

    def expected(self, outputs: int) -> int:
        """One."""
        return 1


@dataclass(frozen=True)
class Hessian(Kind):
    r"""The full Hessian −∂² Σ_n log p(y_n|f(x_n; θ))/∂θ², second derivatives of the network included.

    It has no root and may be indefinite: only structures that work with products (full, block, diag, matrix_free)
    take it. Directions of negative curvature, and entries of the estimated diagonal below zero, get the prior's
    precision alone, with a warning that counts them, and says how many of these entries may be noise.

    Args:
        samples: Rademacher vectors for the structures that estimate its diagonal.
        seed: Seed of these vectors.
    """

    name: ClassVar[str] = "hessian"
    samples: int = 100
    seed: int = 0

    def columns(self, likelihood: Likelihood, f: Tensor, y: Tensor) -> Columns:
        """Raise ValueError: the Hessian has no root.

        Raises:
            ValueError: always, with the structures that can be used.
        """
        raise ValueError(
            "this structure is built from columns of a root of the curvature, and the full Hessian has none. "
            "Use structure='full', 'block', 'diag' or 'matrix_free', or curvature='ggn'."
        )


#: The kinds by name, as they are typed.
REGISTRY: dict[str, Callable[[], Kind]] = {
    "ggn": GGN,
    "fisher": Fisher,
    "empirical_fisher": EmpiricalFisher,
    "hessian": Hessian,
}
