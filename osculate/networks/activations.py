"""Elementwise activations by name, and the layers that pool and drop beside them."""

from collections.abc import Callable, Mapping
from functools import partial
from math import log

from torch import Tensor, nn
from torch.nn.functional import softplus

from osculate.registry import lookup


class ShiftedSoftplus(nn.Module):
    r"""(log(1 + e^{βx}) − log 2)/β: smooth as softplus, and zero at zero, so that signals keep their mean over layers.

    Args:
        sharpness: β; the larger, the nearer to ReLU.

    >>> ShiftedSoftplus()(torch.zeros(1))
    tensor([0.])
    """

    def __init__(self, sharpness: float = 1.0) -> None:
        super().__init__()
        self.sharpness = sharpness

    def forward(self, x: Tensor) -> Tensor:
        """Elementwise."""
        return softplus(x, beta=self.sharpness) - log(2) / self.sharpness


#: Activations by name.
ACTIVATIONS: Mapping[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "softplus": nn.Softplus,
    "shifted_softplus": ShiftedSoftplus,
    "sharp_softplus": partial(ShiftedSoftplus, 5.0),
}


def activation_layer(name: str) -> nn.Module:
    """A new layer with this activation.

    Raises:
        ValueError: the name is unknown.
    """
    return lookup("activation", name, ACTIVATIONS)()


def pooling(activation: str) -> nn.Module:
    """Halve the resolution: by the maximum beside ReLU, by the average beside smooth activations.

    A maximum is piecewise linear and has no second derivative, for the sake of which smooth activations are taken.
    """
    return nn.MaxPool2d(2) if activation == "relu" else nn.AvgPool2d(2)


def dropping(share: float) -> list[nn.Module]:
    """A dropout layer, or nothing at all for a share of zero, so that the names of other layers stay.

    Raises:
        ValueError: a share that is not from 0 to below 1.
    """
    if not 0 <= share < 1:
        raise ValueError(f"dropout is a share of the units, from 0 to below 1, not {share!r}: take 0.1, say.")
    return [nn.Dropout(share)] if share else []
