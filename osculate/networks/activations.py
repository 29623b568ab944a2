"""Elementwise activations by name, and the layer that pools in a smooth network."""

from collections.abc import Mapping
from math import log

from torch import Tensor, nn
from torch.nn.functional import softplus

from osculate.registry import lookup


class ShiftedSoftplus(nn.Module):
    """log(1 + eˣ) − log 2: smooth as softplus, and zero at zero, so that signals keep their mean over many layers.

    >>> ShiftedSoftplus()(torch.zeros(1))
    tensor([0.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Elementwise."""
        return softplus(x) - log(2)


#: Activations by name.
ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "softplus": nn.Softplus,
    "shifted_softplus": ShiftedSoftplus,
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
