"""The interface of a prior: Gaussians that differ in their mean, and in the number of their precisions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import log, pi
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.parameters import ParameterSpace

#: Number of values that the text of a prior shows.
SHOWN = 5


class Prior(ABC):
    r"""A Gaussian p(θ|δ) = N(μ, Σ) with Σ = diag(δ)⁻¹, and μ = 0 unless :meth:`around` gives another mean.

    .. math:: \log p(\theta \mid \delta) = \tfrac12 \sum_p \left[\log \delta_p - \delta_p (\theta_p - \mu_p)^2
              - \log 2\pi\right]

    A prior has one tensor ``precision`` (positive, in 1/units of θ²) and assigns its entries to the parameters. Once
    bound to a network it is an operator on flat parameters: :meth:`multiply` (Σ⁻¹ v), :meth:`solve` (Σ v),
    :meth:`colour` (Σ^{1/2} z) and :meth:`log_det` (log |Σ⁻¹|).

    Attributes:
        precision: δ.
        mean: μ, flat once bound to a network; None for zero.
        curvature: The part of Σ⁻¹ that is not diagonal, None for most priors.
    """

    precision: Tensor
    mean: Any = None
    curvature: Any = None
    #: True if all parameters share one precision.
    isotropic: ClassVar[bool] = False
    #: True if Σ is not diagonal, while :attr:`curvature` is None: only some structures take such a prior.
    correlated: ClassVar[bool] = False

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

    def require_structure(self, curvature: Any) -> None:
        """Raise ValueError if the structure of a curvature cannot take this prior; every one takes a diagonal prior."""

    @property
    def diagonal(self) -> "Prior":
        """The prior without its mean, and without the curvature of an earlier posterior."""
        return self

    @property
    def independent(self) -> bool:
        """True if all parameters are independent, Σ is diagonal."""
        return self.curvature is None and not self.correlated

    @property
    def hyperparameters(self) -> dict[str, Tensor]:
        """The tensors that the evidence can choose, by name: the precision first."""
        return {"precision": self.precision}

    def with_hyperparameters(self, values: Mapping[str, Tensor]) -> "Prior":
        """The same prior with other values of :attr:`hyperparameters`."""
        return self.with_precision(values["precision"])

    def class_weights(self) -> list[Float[Tensor, " E"]]:
        """w of each group, for Σ = Σ_g Σ_c w_gc D_gc with fixed matrices D; one class, 1/δ, without correlations."""
        return [1 / value.double().reshape(1) for value in self.precision.reshape(-1)]

    def class_diagonals(self, rows: Float[Tensor, "K P"], space: ParameterSpace) -> list[Float[Tensor, "E K"]]:
        """The diagonals of x D xᵀ for rows x, by group and class of :meth:`class_weights`."""
        each = torch.stack([self.totals(row, space).reshape(-1) for row in rows.double().square()])
        return [column.unsqueeze(0) for column in each.T]

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of the constructor besides the precision: names and numbers, as JSON has them."""
        return {}

    def with_precision(self, precision: Tensor) -> "Prior":
        """The same prior with other precisions."""
        return type(self)(precision=precision, **self.settings)  # type: ignore[call-arg]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown(self.precision)})"

    def around(self, mean: "float | Tensor | Mapping[str, Tensor]") -> "Prior":
        """The same prior with a mean μ, to which parameters shrink instead of zero.

        Args:
            mean: A number for all parameters, a flat tensor (P,) in the order of ``named_parameters()``, or a mapping
                from names such as the ``state_dict()`` of pretrained weights; entries of other names are left out.

        >>> import osculate as osc
        >>> osc.priors.Isotropic(4.0).around({"w": torch.ones(1)}).log_prob({"w": torch.ones(1)})
        tensor(-0.2258)
        """
        from osculate.priors.centred import Centred

        return Centred(self, mean)

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> "Prior":
        """The same prior on another device or in another floating type."""
        return self.with_precision(self.precision.to(device=device, dtype=dtype))

    def apart(self, theta: Float[Tensor, "*S P"]) -> Float[Tensor, "*S P"]:
        """θ − μ."""
        return theta if self.mean is None else theta - self.mean.to(theta)

    def multiply(self, v: Float[Tensor, "*S P"], space: ParameterSpace) -> Float[Tensor, "*S P"]:
        """Σ⁻¹ v."""
        return self.vector(space).to(v) * v

    def square(self, v: Float[Tensor, " P"], space: ParameterSpace) -> Float[Tensor, ""]:
        """vᵀ Σ⁻¹ v."""
        return (v * self.multiply(v, space)).sum()

    def solve(self, v: Float[Tensor, "*S P"], space: ParameterSpace) -> Float[Tensor, "*S P"]:
        """Σ v."""
        return v / self.vector(space).to(v)

    def colour(self, z: Float[Tensor, "*S P"], space: ParameterSpace) -> Float[Tensor, "*S P"]:
        """Σ^{1/2} z: white noise to draws around μ."""
        return z / self.vector(space).to(z).sqrt()

    def log_det(self, space: ParameterSpace) -> Float[Tensor, ""]:
        """log |Σ⁻¹|, in double precision."""
        return self.vector(space).double().log().sum() + self.log_det_ratio()

    def log_det_ratio(self) -> Float[Tensor, ""] | float:
        """log |Σ⁻¹| less that of its diagonal part."""
        return 0.0

    def log_prob(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """The exact log density of these named parameters, with all constants."""
        space = ParameterSpace.of(parameters)
        if self.mean is not None or self.correlated:
            bound = self.bind(space)
            apart = bound.apart(space.flatten(parameters))
            square = bound.square(apart, space)
            return 0.5 * (bound.log_det(space).to(square) - space.size * log(2 * pi) - square)
        per_tensor = self.bind(space).per_tensor(space)
        if per_tensor is None:
            theta = space.flatten(parameters)
            delta = self.bind(space).vector(space).to(theta)
            return 0.5 * (delta.log() - delta * theta.square() - log(2 * pi)).sum()
        flat = [parameters[name].reshape(-1) for name in space.names]
        squares = torch.stack([torch.dot(each, each) for each in flat])  # no copy, as squares would be
        delta = per_tensor.to(squares)
        return 0.5 * ((delta.log() - log(2 * pi)) @ squares.new_tensor(space.sizes) - delta @ squares)


def shown(values: Tensor) -> str:
    """The first of these values."""
    each = values.detach().reshape(-1).tolist()
    return ", ".join(f"{value:.3g}" for value in each[:SHOWN]) + (", …" if len(each) > SHOWN else "")


def positive(precision: float | Tensor) -> Tensor:
    """A precision as a tensor; an error unless positive and finite.

    Raises:
        ValueError: it is zero, negative, NaN or infinite.
        TypeError: it is no number.
    """
    try:
        tensor = torch.as_tensor(precision)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"a prior precision is a number or a tensor, got {precision!r:.80}. A prior is an object such as "
            "osc.priors.Isotropic(1.0), around given weights osc.priors.Isotropic(1.0).around(weights)."
        ) from error
    tensor = tensor if tensor.is_floating_point() else tensor.float()
    if not bool((tensor > 0).all()) or not bool(tensor.isfinite().all()):
        raise ValueError(
            f"the prior precision must be positive and finite, got {precision}. "
            "It is the inverse variance of the weights: a small one (1e-4) is a vague prior."
        )
    return tensor
