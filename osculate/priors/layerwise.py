"""One precision for each parameter tensor."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.parameters import ParameterSpace
from osculate.priors._base import Prior, positive
from osculate.registry import choose


class Layerwise(Prior):
    r"""θ_t ~ N(0, δ_t⁻¹ I) for each parameter tensor t (each weight and each bias has its own).

    Args:
        precision: A number for all tensors, a tensor (T,) in the order of ``names``, or a mapping from parameter
            names to numbers.
        names: The parameter tensors that a tensor (T,) of precisions belongs to; by default those of the network,
            in the order of ``named_parameters()``.

    Raises:
        ValueError: a precision is not positive; on binding, names or number do not fit the network.

    >>> space = ParameterSpace.of({"w": torch.zeros(2), "b": torch.zeros(1)})
    >>> Layerwise({"b": 5.0, "w": 1.0}).bind(space).precision
    tensor([1., 5.])
    """

    def __init__(
        self, precision: float | Tensor | Mapping[str, float] = 1.0, names: tuple[str, ...] | None = None
    ) -> None:
        if isinstance(precision, Mapping):
            names, precision = tuple(precision), torch.tensor(list(precision.values()))
        self.names = names
        self.precision = positive(precision)

    def bind(self, space: ParameterSpace) -> "Layerwise":
        precision = self.precision
        if self.names == space.names and precision.shape == (len(space.names),):
            return self
        if self.names is not None and self.names != space.names:
            for name in self.names:
                choose("parameter of the prior", name, space.names)
            if missing := [name for name in space.names if name not in self.names]:
                raise ValueError(f"the prior gives no precision for {', '.join(missing)}: name every parameter tensor.")
            precision = precision[[self.names.index(name) for name in space.names]]
        if precision.ndim == 0:
            precision = precision.expand(len(space.names))
        if precision.shape != (len(space.names),):
            raise ValueError(
                f"Layerwise has precisions of shape {tuple(precision.shape)}, the network {len(space.names)} "
                f"parameter tensors: {', '.join(space.names)}."
            )
        return Layerwise(precision, space.names)

    def per_tensor(self, space: ParameterSpace) -> Float[Tensor, " T"]:
        return self.bind(space).precision

    def members(self, space: ParameterSpace) -> dict[str, tuple[str, ...]]:
        return {name: (name,) for name in space.names}

    def pooled(self, totals: Float[Tensor, " T"], space: ParameterSpace) -> Float[Tensor, " T"]:
        return totals

    def with_precision(self, precision: Tensor) -> "Layerwise":
        return Layerwise(precision, self.names)
