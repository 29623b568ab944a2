"""The posterior precision with a correlated prior, in coordinates in which the prior is white."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate import linalg
from osculate.curvature.forms import AnyForm, Dense
from osculate.structures.blocks._base import Delta, Joint, Precision


@dataclass(frozen=True, eq=False)
class ColouredPrecision(Precision):
    r"""Λ = scale · G + Σ⁻¹ = L⁻ᵀ (scale · Lᵀ G L + I) L⁻¹ with Σ = L Lᵀ.

    Attributes:
        inner: The precision scale · Lᵀ G L + I in white coordinates.
        delta: The prior, with the covariance Σ.
        product: Function of v that gives scale · G v.
        probes: Random signs for the variances.
    """

    inner: Precision
    delta: Delta
    product: Callable[[Tensor], Tensor]
    probes: Float[Tensor, "S p"]

    def log_det_ratio(self) -> Float[Tensor, ""]:
        assert self.delta.correlated is not None
        return self.inner.log_det_ratio() + self.delta.correlated.prior.log_det_ratio()

    def effective_parameters(self) -> Float[Tensor, " p"]:
        """γ in the white coordinates: sums over whole filters are those of the filters."""
        return self.inner.effective_parameters()

    def multiply(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return self.delta.multiply(v) + self.product(v)

    def solve(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return self.delta.colour(self.inner.solve(self.delta.coloured(v)))

    def precondition(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return self.delta.colour(self.inner.precondition(self.delta.coloured(v)))

    def colour(self, z: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return self.delta.colour(self.inner.colour(z))

    def whiten(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return self.inner.whiten(self.delta.coloured(v))

    def variance(self) -> Float[Tensor, " p"]:
        """That of the low-rank approximation, and for products an average over probes of the difference from it."""
        base: Any = getattr(self.inner, "base", self.inner)
        halves = torch.linalg.solve_triangular(base.root, base.factor.double(), upper=False)
        prior = 1 / self.delta.vector.to(halves)
        found = prior - self.delta.colour(halves).square().sum(0)
        found = found.clamp(min=torch.finfo(prior.dtype).eps * prior)
        if base is not self.inner:
            with torch.no_grad():
                apart = linalg.diagonal(lambda v: self.solve(v) - self.precondition(v), self.probes).value.to(found)
            low, high = self.inner.bounds  # type: ignore[attr-defined]
            found = torch.minimum(torch.maximum(found + apart, found / high), found / low)
        return found.to(self.probes)

    def contract(self, projected: Any, events: int) -> Float[Tensor, "N T E E"]:
        return self.inner.contract(self.delta.coloured(projected.flatten(0, 1)).reshape(projected.shape), events)

    def covariance(self, form: AnyForm | Joint) -> Float[Tensor, "K K"]:
        rows = form.rows()
        return self.inner.covariance(Dense(self.delta.coloured(rows.flatten(0, 1)).reshape(rows.shape)))
