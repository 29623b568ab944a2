"""A prior with a mean: shrinkage to given weights instead of zero."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.parameters import ParameterSpace
from osculate.priors._base import Prior


class Centred(Prior):
    r"""θ ~ N(μ, Σ) with the covariance Σ of another prior, as :meth:`Prior.around` makes it.

    Args:
        prior: The prior that gives Σ.
        mean: μ: a number, a flat tensor, or tensors by name.

    Raises:
        ValueError: on binding, a mean that is not finite or does not fit the parameters.
    """

    def __init__(self, prior: Prior, mean: float | Tensor | Mapping[str, Tensor]) -> None:
        self.inner, self.mean = prior, mean

    @property
    def precision(self) -> Tensor:  # type: ignore[override]
        """The precisions of the other prior."""
        return self.inner.precision

    @property
    def isotropic(self) -> bool:  # type: ignore[override]
        """True if all parameters share one precision."""
        return self.inner.isotropic

    @property
    def correlated(self) -> bool:  # type: ignore[override]
        """True if the other prior is."""
        return self.inner.correlated

    @property
    def diagonal(self) -> Prior:
        """The other prior."""
        return self.inner

    @property
    def hyperparameters(self) -> dict[str, Tensor]:
        return self.inner.hyperparameters

    def with_hyperparameters(self, values: Mapping[str, Tensor]) -> "Centred":
        return Centred(self.inner.with_hyperparameters(values), self.mean)

    def require_structure(self, curvature: Any) -> None:
        self.inner.require_structure(curvature)

    def class_weights(self) -> list[Float[Tensor, " E"]]:
        return self.inner.class_weights()

    def class_diagonals(self, rows: Float[Tensor, "K P"], space: ParameterSpace) -> list[Float[Tensor, "E K"]]:
        return self.inner.class_diagonals(rows, space)

    def multiply(self, v: Float[Tensor, "*S P"], space: ParameterSpace) -> Float[Tensor, "*S P"]:
        return self.inner.multiply(v, space)

    def solve(self, v: Float[Tensor, "*S P"], space: ParameterSpace) -> Float[Tensor, "*S P"]:
        return self.inner.solve(v, space)

    def colour(self, z: Float[Tensor, "*S P"], space: ParameterSpace) -> Float[Tensor, "*S P"]:
        return self.inner.colour(z, space)

    def log_det_ratio(self) -> Float[Tensor, ""] | float:
        return self.inner.log_det_ratio()

    def bind(self, space: ParameterSpace) -> "Centred":
        return Centred(self.inner.bind(space), _flat(self.mean, space))

    def per_tensor(self, space: ParameterSpace) -> Float[Tensor, " T"] | None:
        return self.inner.per_tensor(space)

    def members(self, space: ParameterSpace) -> dict[str, tuple[str, ...]]:
        return self.inner.members(space)

    def vector(self, space: ParameterSpace) -> Float[Tensor, " P"]:
        return self.inner.vector(space)

    def totals(self, values: Float[Tensor, " P"], space: ParameterSpace) -> Tensor:
        return self.inner.totals(values, space)

    def pooled(self, totals: Float[Tensor, " T"], space: ParameterSpace) -> Tensor:
        return self.inner.pooled(totals, space)

    def with_precision(self, precision: Tensor) -> "Centred":
        return Centred(self.inner.with_precision(precision), self.mean)

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> "Centred":
        mean = self.mean.to(device=device, dtype=dtype) if isinstance(self.mean, Tensor) else self.mean
        return Centred(self.inner.to(device, dtype), mean)

    def __repr__(self) -> str:
        return f"{self.inner!r} around a mean"


def _flat(mean: Any, space: ParameterSpace) -> Float[Tensor, " P"]:
    """The mean as one vector.

    Raises:
        ValueError: it does not fit the parameters, or is not finite.
    """
    if isinstance(mean, Mapping):
        shapes = dict(zip(space.names, space.shapes, strict=True))
        for name, shape in shapes.items():
            if name not in mean:
                raise ValueError(f"the mean of the prior has no {name!r}: give every parameter of the posterior.")
            if tuple(mean[name].shape) != tuple(shape):
                found = tuple(mean[name].shape)
                raise ValueError(f"the mean of the prior for {name!r} has shape {found}, the parameter {tuple(shape)}.")
        mean = space.flatten({name: mean[name].detach() for name in space.names})
    flat = torch.as_tensor(mean)
    flat = flat if flat.is_floating_point() else flat.float()
    flat = flat.expand(space.size) if flat.ndim == 0 else flat
    if flat.shape != (space.size,):
        raise ValueError(
            f"the mean of the prior has shape {tuple(flat.shape)}, and the posterior is over {space.size} parameters: "
            "pass a number, a flat tensor, or tensors by name."
        )
    if not bool(flat.isfinite().all()):
        raise ValueError("the mean of the prior holds NaN or infinity.")
    return flat
