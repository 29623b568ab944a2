"""Whether a network has second derivatives."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from osculate.inputs import Inputs, call, moved, take
from osculate.parameters import undisturbed

#: Operations with kinks by the names under which a mode sees them; a maximum of one's own with ``where`` is not seen.
# fmt: off
KINKED = frozenset(
    {
        "abs", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "amax", "clamp", "clamp_min",
        "hardshrink", "hardsigmoid", "hardtanh", "leaky_relu", "max", "max_pool1d", "max_pool2d", "max_pool3d",
        "maximum", "prelu", "relu", "relu6", "rrelu", "selu", "softshrink", "threshold",
    }
)
# fmt: on


class _Watch(TorchFunctionMode):
    """Notes the piecewise linear operations that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, None] = {}

    def __torch_function__(
        self, operation: Callable, types: Sequence[type], args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = getattr(operation, "__name__", "").rstrip("_")  # relu_ is relu in place
        if name in KINKED:
            self.seen[name] = None
        return operation(*args, **(kwargs or {}))


def warn_of_kinks(model: nn.Module, x: Inputs) -> None:
    """Warn of operations of a network that are linear but for kinks, where all of its curvature sits."""
    with undisturbed(model), torch.no_grad(), _Watch() as watch:
        device = next(model.parameters()).device
        model.eval()
        call(model, moved(take(x, slice(1)), device))
    if watch.seen:
        warnings.warn(
            f"the network has piecewise linear operations ({', '.join(watch.seen)}): their second derivative is zero "
            "but at the kinks, so that the mean does not learn from how the curvature changes there. Take smooth ones, "
            "such as softplus or SiLU and average pooling (networks.LeNet(activation='shifted_softplus')).",
            stacklevel=3,
        )
