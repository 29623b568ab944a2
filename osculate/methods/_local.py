"""The local reparameterisation: noise on sums in place of noise on weights."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

#: Operations that are linear in their input, called with (x, weight, bias, ...).
LINEAR: tuple[Callable, ...] = (
    F.linear,
    F.conv1d,
    F.conv2d,
    F.conv3d,
    F.conv_transpose1d,
    F.conv_transpose2d,
    F.conv_transpose3d,
)
#: Added to variances of sums, where inputs of zeros have none and the root no derivative.
TINY = 1e-16


class LocalReparameterisation(TorchFunctionMode):
    r"""While it is active, linear layers and convolutions have Gaussian outputs in place of Gaussian weights.

    .. math:: h = A(x; \mu) + \sqrt{A(x^2; \sigma^2)} \circ \epsilon

    with an ε of its own for every output: independent over data, for which one weight would serve all of a batch, and
    over positions and uses too, where weights are shared. Weights that enter any other operation are drawn,
    once. [kingma2015, eq. 6]

    Args:
        mean: μ, by parameter; the very tensors that the network holds.
        variance: σ².
    """

    def __init__(self, mean: Mapping[str, Tensor], variance: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._variance = {id(mean[name]): variance[name] for name in mean}
        self._drawn: dict[int, Tensor] = {}

    def __torch_function__(
        self, operation: Callable, types: Sequence[type], args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if operation in LINEAR:
            x, weight, *rest = [*args, *(named.pop(key) for key in ("input", "weight") if key in named)]
            bias = rest.pop(0) if rest else named.pop("bias", None)
            if id(weight) in self._variance:
                return self._sum(operation, x, weight, bias, rest, named)
        return operation(*tree_map(self._draw, args), **tree_map(self._draw, kwargs or {}))

    def _sum(
        self, operation: Callable, x: Tensor, weight: Tensor, bias: Tensor | None, rest: list, named: dict[str, Any]
    ) -> Tensor:
        x = self._draw(x)
        own = None if bias is None else self._variance.get(id(bias))
        mean = operation(x, weight, bias, *rest, **named)
        noise = None if own is None else own.to(x)
        variance = operation(x.square(), self._variance[id(weight)].to(x), noise, *rest, **named)
        return torch.addcmul(mean, (variance + TINY).sqrt(), torch.randn_like(mean))

    def _draw(self, value: Any) -> Any:
        """A draw of a weight; anything else as it is."""
        variance = self._variance.get(id(value))
        if variance is None:
            return value
        if id(value) not in self._drawn:
            self._drawn[id(value)] = torch.addcmul(value, variance.sqrt().to(value), torch.randn_like(value))
        return self._drawn[id(value)]
