"""One precision for each parameter."""

from jaxtyping import Float
from torch import Tensor

from osculate.parameters import ParameterSpace
from osculate.priors._base import Prior, positive


class Diagonal(Prior):
    r"""θ_p ~ N(0, δ_p⁻¹) for each parameter p.

    Args:
        precision: A tensor (P,) in the order of ``named_parameters()``, or one number for all.

    Raises:
        ValueError: a precision is not positive; on binding, their number is not P.

    >>> Diagonal(2.0).bind(ParameterSpace.of({"w": torch.zeros(3)})).precision
    tensor([2., 2., 2.])
    """

    def __init__(self, precision: float | Tensor = 1.0) -> None:
        self.precision = positive(precision)

    def bind(self, space: ParameterSpace) -> "Diagonal":
        if self.precision.ndim and self.precision.shape != (space.size,):
            raise ValueError(
                f"Diagonal has precisions of shape {tuple(self.precision.shape)}, the network {space.size} parameters."
            )
        return Diagonal(self.precision.expand(space.size))

    def vector(self, space: ParameterSpace) -> Float[Tensor, " P"]:
        return self.bind(space).precision

    def per_tensor(self, space: ParameterSpace) -> None:
        return None

    def totals(self, values: Float[Tensor, " P"], space: ParameterSpace) -> Float[Tensor, " P"]:
        return values

    def members(self, space: ParameterSpace) -> dict[str, tuple[str, ...]]:
        sizes = zip(space.names, space.sizes, strict=True)
        return {f"{name}[{number}]": (name,) for name, size in sizes for number in range(size)}
