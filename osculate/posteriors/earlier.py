"""An earlier posterior as a prior: for data that come in parts, tasks one after another, or parts of other networks."""

from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.linalg import SquaredNorm, SymmetricProduct
from osculate.parameters import ParameterSpace
from osculate.posteriors.gaussian import Gaussian
from osculate.priors import Diagonal, Prior
from osculate.priors._base import positive
from osculate.structures import Curvature, PosteriorPrecision, Structure
from osculate.structures.blocks import DiagonalBlock


class Earlier(Prior):
    r"""θ ~ N(m, (w Λ)⁻¹), the posterior of earlier data with mean m and precision Λ = G/T + diag(δ).

    What was learned before counts as prior for what follows, and both posteriors together are that of all data: exactly
    where curvatures add ("full", "block", "diag", "dual", "matrix_free", …), for Kronecker factors up to the error of
    the nearest Kronecker product (:attr:`relative_error` of the new posterior's blocks).

    Args:
        curvature: G/T of the earlier data.
        diagonal: The prior of these, δ.
        mean: m.
        weight: w; below 1 the earlier data are forgotten in part.

    Attributes:
        precision: w.
        unweighted: G/T.
        unweighted_diagonal: The prior δ.
    """

    def __init__(self, curvature: Curvature, diagonal: Prior, mean: Float[Tensor, " P"], weight: Any = 1.0) -> None:
        self.unweighted, self.unweighted_diagonal, self.mean = curvature, diagonal, mean
        self.precision = positive(weight)
        if self.precision.ndim:
            raise ValueError(f"the weight of an earlier posterior is one number, got {tuple(self.precision.shape)}.")

    @classmethod
    def of(cls, q: Gaussian) -> Prior:
        """The prior that a posterior is for further data: one precision for each parameter where these are independent.

        Raises:
            TypeError: the structure passes over the data more than once, so that its curvatures do not add.
        """
        require_adding(q.structure.structure)
        scale = q.likelihood.curvature_scale(q.fit.likelihood) / q.temperature
        with torch.no_grad():
            curvature, diagonal = q.structure.scaled(scale), q.prior.diagonal
            if q.prior.curvature is not None:
                curvature = curvature.combined(q.prior.curvature)
        if all(isinstance(block, DiagonalBlock) for block in curvature.blocks):
            vector = diagonal.vector(q.network.space).detach().to(q.mean).clone()
            for block in curvature.blocks:
                vector[block.positions] += block.tensors()["values"].to(vector)
            return Diagonal(vector).around(q.mean.detach())
        return cls(curvature, diagonal.with_precision(diagonal.precision.detach()), q.mean.detach())

    @property
    def curvature(self) -> Curvature:
        """w G/T."""
        return self.unweighted if float(self.precision) == 1.0 else self.unweighted.scaled(self.precision)

    @property
    def diagonal(self) -> Prior:
        """The prior with precisions w δ."""
        return self.unweighted_diagonal.with_precision(self.unweighted_diagonal.precision * self.precision)

    @cached_property
    def _whole(self) -> PosteriorPrecision:
        """Λ."""
        return self.unweighted.precision(1.0, self.unweighted_diagonal)

    def _multiplied(self, v: Float[Tensor, "*S P"]) -> Float[Tensor, "*S P"]:
        """Λ v, in the type of the posterior."""
        return self._whole.multiply(v.to(self.mean)).to(v)

    def bind(self, space: ParameterSpace) -> "Earlier":
        known = self.unweighted.space
        if known != space:
            theirs = dict(zip(known.names, known.shapes, strict=True))
            mine = dict(zip(space.names, space.shapes, strict=True))
            other = next(name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name))
            raise ValueError(
                f"the earlier posterior is over other parameters: {other!r} has shape {theirs.get(other)} there and "
                f"{mine.get(other)} here."
            )
        return self

    def per_tensor(self, space: ParameterSpace) -> Float[Tensor, " T"] | None:
        return self.diagonal.per_tensor(space)

    def vector(self, space: ParameterSpace) -> Float[Tensor, " P"]:
        return self.diagonal.vector(space)

    def members(self, space: ParameterSpace) -> dict[str, tuple[str, ...]]:
        return {"earlier posterior": space.names}

    def totals(self, values: Float[Tensor, " P"], space: ParameterSpace) -> Float[Tensor, ""]:
        return values.sum()

    def pooled(self, totals: Float[Tensor, " T"], space: ParameterSpace) -> Float[Tensor, ""]:
        return totals.sum()

    def multiply(self, v: Float[Tensor, "*S P"], space: ParameterSpace) -> Float[Tensor, "*S P"]:
        return self.precision.to(v) * SymmetricProduct.apply(self._multiplied, v)

    def square(self, v: Float[Tensor, " P"], space: ParameterSpace) -> Float[Tensor, ""]:
        return self.precision.to(v) * SquaredNorm.apply(self._multiplied, v)

    def solve(self, v: Float[Tensor, "*S P"], space: ParameterSpace) -> Float[Tensor, "*S P"]:
        return self._whole.solve(v.to(self.mean)).to(v) / self.precision.to(v)

    def colour(self, z: Float[Tensor, "*S P"], space: ParameterSpace) -> Float[Tensor, "*S P"]:
        return self._whole.colour(z.to(self.mean)).to(z) / self.precision.to(z).sqrt()

    def log_det_ratio(self) -> Float[Tensor, ""]:
        return self._whole.log_det_ratio()  # w is part of both

    def with_precision(self, precision: Tensor) -> "Earlier":
        return Earlier(self.unweighted, self.unweighted_diagonal, self.mean, precision)

    def require_structure(self, curvature: Curvature) -> None:
        """Raise ValueError if the curvature of this prior cannot be added to another one.

        Raises:
            ValueError: another structure.
        """
        mine, theirs = self.unweighted.structure.name, curvature.structure.name
        if mine != theirs:
            raise ValueError(
                f"the earlier posterior has structure {mine!r}, and this fit {theirs!r}: their curvatures do not add. "
                f"Fit with structure={mine!r}."
            )

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> "Earlier":
        """The same prior on another device or in another floating type."""

        def there(tensor: Tensor) -> Tensor:
            return tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)

        moved = self.unweighted.with_tensors({name: there(value) for name, value in self.unweighted.tensors().items()})
        blocks = tuple(replace(b, positions=b.positions.to(device)) for b in moved.blocks)  # type: ignore[type-var]
        diagonal = self.unweighted_diagonal.with_precision(there(self.unweighted_diagonal.precision))
        return Earlier(replace(moved, blocks=blocks), diagonal, there(self.mean), there(self.precision))

    def __repr__(self) -> str:
        return f"Earlier(structure={self.unweighted.structure.name!r}, weight={float(self.precision):.3g})"


def require_adding(structure: Structure) -> None:
    """Raise TypeError if curvatures of this structure do not add, so that its posteriors cannot be priors.

    Raises:
        TypeError: it passes over the data more than once.
    """
    if structure.passes > 1:
        raise TypeError(
            f"a posterior with structure {structure.name!r} cannot be a prior: its curvature does not add to that of "
            "other data. Fit it with 'kron', 'full', 'diag' or 'dual'."
        )


def as_prior(prior: Any) -> Any:
    """The prior that a posterior is, or the result of a training with one; anything else unchanged."""
    posterior = getattr(prior, "posterior", prior)
    return Earlier.of(posterior) if isinstance(posterior, Gaussian) else prior
