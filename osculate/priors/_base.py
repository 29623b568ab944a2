"""The interface of a prior: zero-mean Gaussians that differ in their number of precisions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import log, pi
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.parameters import ParameterSpace

#: Number of precisions that the text of a prior shows.
SHOWN = 5


class Prior(ABC):
    r"""A zero-mean Gaussian p(θ|δ) = N(0, diag(δ)⁻¹).

    .. math:: \log p(\theta \mid \delta) = \tfrac12 \sum_p \left[\log \delta_p - \delta_p \theta_p^2 - \log 2\pi\right]

    A prior has one tensor ``precision`` (positive, in 1/units of θ²) and assigns its entries to the parameters.
    """

    precision: Tensor
    #: True if all parameters share one precision.
    isotropic: ClassVar[bool] = False

    @abstractmethod
    def bind(self, space: ParameterSpace) -> "Prior":
        """The same prior with one precision for each of its groups in this space.

        Raises:
            ValueError: the precisions do not fit the space.
        """

    @abstractmethod
    def per_tensor(self, space: ParameterSpace) -> Float[Tensor, " T"] | None:
        """The precision of every parameter tensor, or None where it varies within a tensor."""

    @abstractmethod
    def members(self, space: ParameterSpace) -> dict[str, tuple[str, ...]]:
        """A label for each precision, in order, with the parameter tensors that it belongs to."""

    def vector(self, space: ParameterSpace) -> Float[Tensor, " P"]:
        """The precision δ_p of every parameter, in the order of the space."""
        if (per_tensor := self.per_tensor(space)) is None:
            raise NotImplementedError(f"{type(self).__name__} has no precision per tensor: define its method vector.")
        return space.spread(per_tensor)

    def totals(self, values: Float[Tensor, " P"], space: ParameterSpace) -> Tensor:
        """Sums of θ-shaped values over each group that shares a precision, in the shape of ``precision``."""
        return self.pooled(space.totals(values), space)

    def pooled(self, totals: Float[Tensor, " T"], space: ParameterSpace) -> Tensor:
        """:meth:`totals` from one sum for each parameter tensor, for a prior whose groups are made of whole tensors."""
        raise ValueError(f"the precisions of {type(self).__name__} vary within parameter tensors: use totals.")

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of the constructor besides the precision: names and numbers, as JSON has them."""
        return {}

    def with_precision(self, precision: Tensor) -> "Prior":
        """The same prior with other precisions."""
        return type(self)(precision=precision, **self.settings)  # type: ignore[call-arg]

    def __repr__(self) -> str:
        values = self.precision.detach().reshape(-1).tolist()
        shown = ", ".join(f"{value:.3g}" for value in values[:SHOWN]) + (", …" if len(values) > SHOWN else "")
        return f"{type(self).__name__}({shown})"

    def log_prob(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """The exact log density of these named parameters, with all constants."""
        space = ParameterSpace.of(parameters)
        per_tensor = self.bind(space).per_tensor(space)
        if per_tensor is None:
            theta = space.flatten(parameters)
            delta = self.bind(space).vector(space).to(theta)
            return 0.5 * (delta.log() - delta * theta.square() - log(2 * pi)).sum()
        flat = [parameters[name].reshape(-1) for name in space.names]
        squares = torch.stack([torch.dot(each, each) for each in flat])  # no copy, as squares would be
        delta = per_tensor.to(squares)
        return 0.5 * ((delta.log() - log(2 * pi)) @ squares.new_tensor(space.sizes) - delta @ squares)


def positive(precision: float | Tensor) -> Tensor:
    """A precision as a tensor; an error unless positive and finite.

    Raises:
        ValueError: it is zero, negative, NaN or infinite.
    """
    tensor = torch.as_tensor(precision)
    tensor = tensor if tensor.is_floating_point() else tensor.float()
    if not bool((tensor > 0).all()) or not bool(tensor.isfinite().all()):
        raise ValueError(
            f"the prior precision must be positive and finite, got {precision}. "
            "It is the inverse variance of the weights: a small one (1e-4) is a vague prior."
        )
    return tensor
