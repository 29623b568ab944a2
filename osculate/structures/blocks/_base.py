"""The interface of a block of a curvature matrix, before and after a prior is added."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from osculate.curvature.engine import Observation
from osculate.curvature.forms import AnyForm, Dense, Form, Outer
from osculate.inputs import Inputs
from osculate.linalg import row_products
from osculate.parameters import ParameterSpace


class Block(ABC):
    """The curvature of one set of parameters: plain tensors that add, and operations on vectors.

    Attributes:
        positions: Index of each entry in θ, flat (p,).
    """

    positions: Tensor
    #: The attributes that add over batches.
    state: ClassVar[tuple[str, ...]] = ()
    #: True if rows over all parameters of the block are formed, instead of the factors of a layer.
    whole_rows: ClassVar[bool] = False

    def tensors(self) -> dict[str, Tensor]:
        """The state: everything that adds over batches."""
        return {name: tensor for name in self.state if (tensor := getattr(self, name)) is not None}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> "Block":
        """The same block with another state."""
        return replace(self, **{name: tensors[name] for name in self.tensors()})  # type: ignore[type-var]

    def added(self, other: "Block") -> "Block":
        """The block of both data sets together."""
        theirs = other.tensors()
        return self.with_tensors({name: value + theirs[name].to(value) for name, value in self.tensors().items()})

    def scaled(self, factor: Float[Tensor, ""] | float) -> "Block":
        """The block times a positive factor."""
        return self.with_tensors({name: value * factor for name, value in self.tensors().items()})

    def combined(self, other: "Block") -> "Block":
        """The sum of this and another block, or the nearest one of this kind."""
        return self.added(other)

    @property
    def kept(self) -> list[tuple[Inputs, Tensor]]:
        """The data that the state itself holds, in batches; nothing for most blocks."""
        return []

    def addends(self, pass_index: int) -> list[Tensor]:
        """The parts of the state to which a pass over the data has added."""
        return [] if pass_index else list(self.tensors().values())

    def said(self, start: Observation) -> Any:
        """Message to other processes after the first pass: a part of the state that is no sum, on the CPU; or None.

        Args:
            start: Some data, with the network and the kind of curvature.
        """
        return None

    def hear(self, each: Sequence[Any], rank: int, start: Observation) -> None:
        """Add the messages of other processes, in place, before :meth:`finish`.

        Args:
            each: Messages of all processes.
            rank: Number of this process.
            start: Some data, with the network and the kind of curvature.
        """

    def decomposed(self) -> dict[str, Tensor]:
        """The matrices (G, n, n) whose eigendecompositions the block uses, by the cached property that holds them."""
        return {}

    def together(self, joint: "Joint") -> Any:
        """The argument of :meth:`accumulate` for the forms of all parameters; by default whole rows."""
        return Dense(joint.rows())

    @abstractmethod
    def accumulate(self, form: Form) -> None:
        """Add one batch to the state, in place; :meth:`finish` follows the last one."""

    def finish(self) -> None:
        """Complete the work that :meth:`accumulate` postpones for speed, in place."""

    def project(self, form: AnyForm, events: int) -> Any:
        """The argument of :meth:`Precision.contract` for a form: the costly part, which serves any prior."""
        return form.rows()

    @abstractmethod
    def sensitivity(self) -> Float[Tensor, " p"]:
        """√G_pp up to a common factor: zero for a parameter that no output depends on."""

    @abstractmethod
    def precision(self, scale: Float[Tensor, ""] | float, delta: "Delta") -> "Precision":
        """The block of the posterior precision, scale · G + diag(δ), factorised."""

    @abstractmethod
    def dense(self) -> Float[Tensor, "p p"]:
        """The matrix itself, in the order of ``positions``."""


@dataclass(frozen=True)
class Joint:
    """The forms of all parameters side by side; None for parameters that the data did not use."""

    forms: tuple[AnyForm | None, ...]
    sizes: tuple[int, ...]

    @property
    def count(self) -> tuple[int, int]:
        """V columns and N data."""
        v, n = _columns(next(form for form in self.forms if form is not None)).shape[:2]
        return v, n

    def rows(self) -> Float[Tensor, "V N p"]:
        """The rows themselves."""
        rows = [None if form is None else form.rows() for form in self.forms]
        like = next(each for each in rows if each is not None)
        blank = [like.new_zeros(*like.shape[:2], size) for size in self.sizes]
        parts = [zeros if each is None else each for each, zeros in zip(rows, blank, strict=True)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    @staticmethod
    def of_columns(parts: list["Joint"]) -> "Joint":
        """The columns of several parts for the same data."""
        if len(parts) == 1:
            return parts[0]
        forms: list[AnyForm | None] = []
        for several in zip(*(part.forms for part in parts), strict=True):
            like = next((form for form in several if form is not None), None)
            if like is None:
                forms.append(None)
                continue
            blank = [_columns(like).new_zeros(part.count[0], *_columns(like).shape[1:]) for part in parts]
            each = [zeros if form is None else _columns(form) for form, zeros in zip(several, blank, strict=True)]
            forms.append(replace(like, g=torch.cat(each)) if isinstance(like, Outer) else Dense(torch.cat(each)))
        return Joint(tuple(forms), parts[0].sizes)


def _columns(form: AnyForm) -> Float[Tensor, "V N *p"]:
    """The factor of a form that depends on the columns."""
    return form.g if isinstance(form, Outer) else form.rows()


@dataclass(frozen=True, eq=False)
class Correlated:
    """A prior whose covariance Σ is not diagonal, for vectors (S, p) in the order of a block of all parameters.

    Attributes:
        prior: The prior.
        space: All parameters.
        positions: Index of each entry of the block in θ.
    """

    prior: Any
    space: ParameterSpace
    positions: Int[Tensor, " p"]

    @cached_property
    def _runs(self) -> tuple[list[slice], list[slice]]:
        """Slices of neighbours in the block that are neighbours in θ, in the order of θ, and the other way round."""
        return _runs(self.positions.argsort()), _runs(self.positions)

    def ordered(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S P"]:
        """Vectors in the order of θ."""
        return _joined(v, self._runs[0])

    def apply(self, verb: str, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        """An operator of the prior, by the name of its method."""
        return _joined(getattr(self.prior, verb)(self.ordered(v), self.space), self._runs[1])


def _runs(index: Int[Tensor, " p"]) -> list[slice]:
    """An index as slices of consecutive numbers: copies of whole tensors, where a gather takes each entry alone."""
    breaks = (index.diff() != 1).nonzero().squeeze(-1) + 1
    return [slice(int(run[0]), int(run[-1]) + 1) for run in index.tensor_split(breaks.cpu())]


def _joined(v: Float[Tensor, "S p"], runs: list[slice]) -> Float[Tensor, "S p"]:
    return v if len(runs) == 1 else torch.cat([v[..., run] for run in runs], -1)


@dataclass(frozen=True, eq=False)
class Delta:
    """The prior of one block: a precision for each parameter, and by tensor if they are constant within it.

    For vectors (S, p) it is an operator: :meth:`multiply` (Σ⁻¹ v), :meth:`solve` (Σ v), :meth:`colour` (Σ^{1/2} v) and
    :meth:`coloured`, its transpose.

    Attributes:
        spread: Function that returns δ of each parameter, in the order of the block; called on demand.
        weight: δ of the weight, None where it varies within it.
        bias: δ of the bias, None if there is none, or if it equals that of the weight by construction.
        by_tensor: δ of each parameter tensor of the network, None where it varies within one.
        correlated: The prior if its parameters are correlated; δ is then 1/Σ_pp.
    """

    spread: Callable[[], Float[Tensor, " p"]]
    weight: Float[Tensor, ""] | None = None
    bias: Float[Tensor, ""] | None = None
    by_tensor: Float[Tensor, " T"] | None = None
    correlated: Correlated | None = None

    @cached_property
    def vector(self) -> Float[Tensor, " p"]:
        """δ of each parameter."""
        return self.spread()

    def multiply(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        """Σ⁻¹ v."""
        return v * self.vector.to(v) if self.correlated is None else self.correlated.apply("multiply", v)

    def solve(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        """Σ v."""
        return v / self.vector.to(v) if self.correlated is None else self.correlated.apply("solve", v)

    def colour(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        """Σ^{1/2} v."""
        return v / self.vector.to(v).sqrt() if self.correlated is None else self.correlated.apply("colour", v)

    def coloured(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        """The transpose of :meth:`colour`."""
        return v / self.vector.to(v).sqrt() if self.correlated is None else self.correlated.apply("coloured", v)


class Precision(ABC):
    """One block of a posterior precision Λ = scale · G + diag(δ). Vectors are (S, p) in the order of the block."""

    @abstractmethod
    def log_det_ratio(self) -> Float[Tensor, ""]:
        """log |Λ| − log |diag(δ)|: its gradient in −log δ is γ."""

    @abstractmethod
    def effective_parameters(self) -> Float[Tensor, " p"]:
        """γ of each parameter: 1 − δ_p (Λ⁻¹)_pp, between 0 (determined by the prior) and 1 (by the data)."""

    def effective_parameters_by_tensor(self, split: Callable[[Tensor], list[Tensor]]) -> list[Float[Tensor, ""]]:
        """γ of each parameter tensor, into which ``split`` cuts values (p,); in double precision."""
        return [values.sum(dtype=torch.double) for values in split(self.effective_parameters())]

    @abstractmethod
    def multiply(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        """Λ v."""

    @abstractmethod
    def solve(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        """Λ⁻¹ v."""

    def precondition(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        """An approximation of Λ⁻¹ v that needs no pass over the data; Λ⁻¹ v itself if the block has its factors."""
        return self.solve(v)

    @abstractmethod
    def colour(self, z: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        """M z with M Mᵀ = Λ⁻¹: white noise to a posterior sample."""

    @abstractmethod
    def whiten(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        """Multiply with Mᵀ, so that the products of whitened vectors are vᵀ Λ⁻¹ w."""

    @abstractmethod
    def variance(self) -> Float[Tensor, " p"]:
        """The diagonal of Λ⁻¹."""

    def contract(self, projected: Any, events: int) -> Float[Tensor, "N T E E"]:
        """The blocks of J_n Λ⁻¹ J_nᵀ for groups of E of the V = T·E rows of each datum, from ``Block.project``."""
        return grams(self.whiten(projected.flatten(0, 1)).unflatten(0, projected.shape[:2]), events)

    def covariance(self, form: "AnyForm | Joint") -> Float[Tensor, "K K"]:
        """J Λ⁻¹ Jᵀ over the rows of all data together, K = N·V ordered by datum, in double precision."""
        return row_products(self.whiten(form.rows().transpose(0, 1).flatten(0, 1)))


def grams(rows: Float[Tensor, "V N p"], events: int) -> Float[Tensor, "N T E E"]:
    """The products of whitened rows with each other, in groups of E consecutive ones."""
    if events == 1:
        return rows.square().sum(-1).T[..., None, None]
    grouped = rows.unflatten(0, (-1, events)).permute(2, 0, 1, 3)
    return grouped @ grouped.mT


def weighted_grams(
    g: Float[Tensor, "V N G O"] | None, weights: Float[Tensor, "N G O"], events: int
) -> Float[Tensor, "N T E E"]:
    """Σ_o w_o g_eo g_fo in groups of E consecutive columns; for E = 1 ``g`` holds the squares; None is the identity."""
    if g is None:
        each = weights.flatten(1)
        return each[..., None, None] if events == 1 else each.diag_embed().unsqueeze(1)
    if events == 1:
        return (g * weights).sum((2, 3)).T[..., None, None]
    grouped = g.unflatten(0, (-1, events)).permute(2, 0, 1, 3, 4)
    return (grouped * weights[:, None, None]).flatten(3) @ grouped.flatten(3).mT


def by_group(x: Float[Tensor, "*N G I"], matrices: Float[Tensor, "G I J"]) -> Float[Tensor, "*N G J"]:
    """The products of vectors with the matrix of their group: a plain product where there is one group."""
    if matrices.shape[0] == 1:
        return (x.squeeze(-2) @ matrices[0]).unsqueeze(-2)
    return torch.einsum("...gi,gij->...gj", x, matrices)


@dataclass(frozen=True)
class Picked:
    """The rows of a lookup by the indices that each datum picks, from :meth:`Lookup.merged`.

    Attributes:
        indices: Indices of the picked rows of the table.
        g: Gradients of these rows; squared for single outputs.
    """

    indices: Int[Tensor, "N K"]
    g: Float[Tensor, "V N K O"]

    @classmethod
    def of(cls, indices: Int[Tensor, "N K"], g: Float[Tensor, "V N K O"], events: int) -> "Picked":
        """The picked rows for groups of this many columns."""
        return cls(indices, g.square() if events == 1 else g)

    def add_squares(self, total: Float[Tensor, "O I"]) -> None:
        """Add Σ_v g² of all data to a table, in place; for single outputs."""
        total.T.index_add_(0, self.indices.reshape(-1), self.g.sum(0).flatten(0, 1))

    def grams(self, weights: Float[Tensor, "O I"], events: int) -> Float[Tensor, "N T E E"]:
        """Σ w g g over the entries of the table, in groups of E consecutive columns."""
        return weighted_grams(self.g, weights.T[self.indices], events)
