"""The interface of a block of a curvature matrix, before and after a prior is added."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from osculate.curvature.forms import AnyForm, Form


class Block(ABC):
    """The curvature of one set of parameters: plain tensors that add.

    Attributes:
        positions: index of each entry in θ, flat (p,).
    """

    positions: Tensor
    #: True if rows over all of its parameters are formed, not the factors of a layer alone.
    whole_rows: ClassVar[bool] = False

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """The state: everything that adds over batches."""

    @abstractmethod
    def with_tensors(self, tensors: dict[str, Tensor]) -> "Block":
        """The same block with another state."""

    @abstractmethod
    def accumulate(self, form: Form) -> None:
        """Add one batch to the state, in place; :meth:`finish` follows the last one."""

    def finish(self) -> None:
        """Complete what :meth:`accumulate` left half done for speed, in place."""

    @abstractmethod
    def project(self, form: AnyForm, events: int) -> Any:
        """The input of :meth:`Precision.contract` for a form and any prior: the costly part, done once."""

    @abstractmethod
    def precision(self, scale: Float[Tensor, ""] | float, delta: "Delta") -> "Precision":
        """The block of the posterior precision, scale · G + diag(δ), ready to be used."""

    @abstractmethod
    def dense(self) -> Float[Tensor, "p p"]:
        """The matrix itself, in the order of ``positions``."""


@dataclass(frozen=True, eq=False)
class Delta:
    """The prior precisions of one block: one for each parameter, and by tensor where they are constant there.

    Attributes:
        spread: function that returns δ of each parameter, in the order of the block; called where a block needs it.
        weight: δ of the weight, None where it varies within it.
        bias: δ of the bias, None where there is none, or it equals the weight's by construction.
        by_tensor: δ of each parameter tensor of the network, None where it varies within one.
    """

    spread: Callable[[], Float[Tensor, " p"]]
    weight: Float[Tensor, ""] | None = None
    bias: Float[Tensor, ""] | None = None
    by_tensor: Float[Tensor, " T"] | None = None

    @cached_property
    def vector(self) -> Float[Tensor, " p"]:
        """δ of each parameter."""
        return self.spread()


class Precision(ABC):
    """One block of a posterior precision Λ = scale · G + diag(δ). Vectors are (*S, p) in the order of the block."""

    @abstractmethod
    def log_det_ratio(self) -> Float[Tensor, ""]:
        """log |Λ| − log |diag(δ)|: its gradient in −log δ is γ."""

    @abstractmethod
    def effective_parameters(self) -> Float[Tensor, " p"]:
        """γ of each parameter: 1 − δ_p (Λ⁻¹)_pp, between 0 (the prior decides) and 1 (the data do)."""

    def effective_parameters_by_tensor(self, split: Callable[[Tensor], list[Tensor]]) -> list[Float[Tensor, ""]]:
        """γ of each parameter tensor of the block, which ``split`` cuts values (p,) into; in double precision."""
        return [values.sum(dtype=torch.double) for values in split(self.effective_parameters())]

    @abstractmethod
    def multiply(self, v: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        """Λ v."""

    @abstractmethod
    def solve(self, v: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        """Λ⁻¹ v."""

    def precondition(self, v: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        """An approximation of Λ⁻¹ v that needs no pass over the data: Λ⁻¹ v itself where the block has its factors."""
        return self.solve(v)

    @abstractmethod
    def colour(self, z: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        """M z with M Mᵀ = Λ⁻¹: white noise to a posterior sample."""

    @abstractmethod
    def whiten(self, v: Float[Tensor, "*S p"]) -> Float[Tensor, "*S p"]:
        """Multiply with Mᵀ, so that the products of whitened vectors are vᵀ Λ⁻¹ w."""

    @abstractmethod
    def variance(self) -> Float[Tensor, " p"]:
        """The diagonal of Λ⁻¹."""

    @abstractmethod
    def contract(self, projected: Any, events: int) -> Float[Tensor, "N T E E"]:
        """The blocks of J_n Λ⁻¹ J_nᵀ for groups of E of the V = T·E rows of each datum, from ``Block.project``."""

    def covariance(self, form: AnyForm) -> Float[Tensor, "K K"]:
        """J Λ⁻¹ Jᵀ over the rows of all data together, K = N·V ordered by datum."""
        rows = self.whiten(form.rows().transpose(0, 1).flatten(0, 1))
        return rows @ rows.T


def grams(rows: Float[Tensor, "V N p"], events: int) -> Float[Tensor, "N T E E"]:
    """The products of whitened rows with each other, in groups of E consecutive ones."""
    if events == 1:
        return rows.square().sum(-1).T[..., None, None]
    grouped = rows.unflatten(0, (-1, events)).permute(2, 0, 1, 3)
    return grouped @ grouped.mT


def weighted_grams(
    g: Float[Tensor, "V N G O"] | None, weights: Float[Tensor, "N G O"], events: int
) -> Float[Tensor, "N T E E"]:
    """Σ_o w_o g_eo g_fo in groups of E consecutive columns; of E = 1, ``g`` holds the squares, None is the identity."""
    if g is None:
        each = weights.flatten(1)
        return each[..., None, None] if events == 1 else each.diag_embed().unsqueeze(1)
    if events == 1:
        return (g * weights).sum((2, 3)).T[..., None, None]
    grouped = g.unflatten(0, (-1, events))
    return torch.einsum("tengo,tfngo->ntef", grouped * weights, grouped)


@dataclass(frozen=True)
class Picked:
    """The rows of a lookup by the numbers that each datum picks, from :meth:`Lookup.merged`.

    Attributes:
        numbers: indices of the picked rows of the table.
        g: gradients that belong to them; squared for single outputs.
    """

    numbers: Int[Tensor, "N K"]
    g: Float[Tensor, "V N K O"]

    @classmethod
    def of(cls, numbers: Int[Tensor, "N K"], g: Float[Tensor, "V N K O"], events: int) -> "Picked":
        """The input of :meth:`grams` for groups of this many columns."""
        return cls(numbers, g.square() if events == 1 else g)

    def add_squares(self, total: Float[Tensor, "O I"]) -> None:
        """Add Σ_v g² of all data to a table, in place; of single outputs."""
        total.T.index_add_(0, self.numbers.reshape(-1), self.g.sum(0).flatten(0, 1))

    def grams(self, weights: Float[Tensor, "O I"], events: int) -> Float[Tensor, "N T E E"]:
        """Σ w g g over the entries of the table, in groups of E consecutive columns."""
        return weighted_grams(self.g, weights.T[self.numbers], events)
