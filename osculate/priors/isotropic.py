"""One precision for all parameters."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from osculate.parameters import ParameterSpace
from osculate.priors._base import Prior, positive


class Isotropic(Prior):
    r"""θ ~ N(0, δ⁻¹ I).

    Args:
        precision: δ, a positive number or scalar tensor.

    Raises:
        ValueError: the precision is not positive, or not one number.

    >>> Isotropic(4.0).log_prob({"w": torch.zeros(1)})
    tensor(-0.2258)
    """

    isotropic: ClassVar[bool] = True

    def __init__(self, precision: float | Tensor = 1.0) -> None:
        self.precision = positive(precision)
        if self.precision.ndim:
            raise ValueError(
                f"Isotropic takes one precision, got a tensor of shape {tuple(self.precision.shape)}: "
                "use Layerwise or Diagonal for several."
            )

    def bind(self, space: ParameterSpace) -> "Isotropic":
        return self

    def vector(self, space: ParameterSpace) -> Float[Tensor, " P"]:
        return self.precision.expand(space.size)

    def per_tensor(self, space: ParameterSpace) -> Float[Tensor, " T"]:
        return self.precision.expand(len(space.names))

    def totals(self, values: Float[Tensor, " P"], space: ParameterSpace) -> Float[Tensor, ""]:
        return values.sum()

    def members(self, space: ParameterSpace) -> dict[str, tuple[str, ...]]:
        return {"all parameters": space.names}

    def pooled(self, totals: Float[Tensor, " T"], space: ParameterSpace) -> Float[Tensor, ""]:
        return totals.sum()
