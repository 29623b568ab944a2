"""Elementwise activations by name, and pooling and dropout layers to go with them."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import log

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from osculate.registry import choose, lookup


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
    "sigmoid": nn.Sigmoid,
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


#: Initialisations of linear layers and convolutions.
INITIALISATIONS = ("torch", "orthogonal", "small")


def initialise(layers: Iterable[nn.Module], initialisation: str, activation: str) -> None:
    """Redraw the weights of a chain of layers, and set biases to zero.

    Args:
        layers: The layers, in the order in which they are applied.
        initialisation: "orthogonal", scaled to preserve the size of gradients through the activation (except in the
            last layer of the chain), "small" for N(0, 0.01²) weights, or "torch", which changes nothing.
        activation: Activation between the layers.

    Raises:
        ValueError: an unknown initialisation.
    """
    if choose("initialisation", initialisation, INITIALISATIONS) == "torch":
        return
    # the root mean square derivative at inputs of mean 0 and variance 1 is the factor on the gradients of one layer
    x = torch.distributions.Normal(0.0, 1.0).icdf((torch.arange(1000) + 0.5) / 1000).requires_grad_()
    with torch.enable_grad():
        (slopes,) = torch.autograd.grad(activation_layer(activation)(x).sum(), x)
    gain = 1 / float(slopes.square().mean().sqrt())
    linear = [layer for layer in layers if isinstance(layer, nn.Linear | nn.Conv2d)]
    for layer in linear:
        if initialisation == "small":
            nn.init.normal_(layer.weight, std=0.01)
        else:
            nn.init.orthogonal_(layer.weight, 1.0 if layer is linear[-1] else gain)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def pooling(activation: str) -> nn.Module:
    """A layer that halves the resolution: by the maximum with ReLU, by the average with smooth activations.

    A maximum is piecewise linear, and would spoil the second derivatives for which smooth activations are chosen.
    """
    return nn.MaxPool2d(2) if activation == "relu" else nn.AvgPool2d(2)


def dropping(share: float) -> list[nn.Module]:
    """A dropout layer, or none for a share of zero, so that the names of other layers stay the same.

    Raises:
        ValueError: the share is not in [0, 1).
    """
    if not 0 <= share < 1:
        raise ValueError(f"dropout, a share of the units, must be at least 0 and below 1, got {share!r}.")
    return [nn.Dropout(share)] if share else []
