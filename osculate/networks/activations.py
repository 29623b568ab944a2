"""Elementwise activations by name, and the layers that pool and drop beside them."""

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


#: How weights of linear layers and convolutions begin.
INITIALISATIONS = ("torch", "orthogonal", "small")


def initialise(layers: Iterable[nn.Module], initialisation: str, activation: str) -> None:
    """Draw the weights of a chain of layers anew; biases are then zero.

    Args:
        layers: The layers, in the order in which they are applied.
        initialisation: "orthogonal", times what keeps gradients through the activation as large as they are (but for
            the last layer of the chain), "small" for N(0, 0.01²) weights, or "torch", which leaves all as it is.
        activation: Between them.

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
