"""The multilayer perceptron."""

import math
from collections.abc import Sequence
from typing import Any

from torch import nn

from osculate.networks.activations import activation_layer, dropping


class MLP(nn.Sequential):
    """Linear layers with an elementwise activation between them.

    Args:
        inputs: Number of input features.
        hidden: Widths of the hidden layers; empty for a linear model.
        outputs: Number of outputs C.
        activation: A key of :data:`osculate.networks.activations.ACTIVATIONS`.
        dropout: Share of the hidden units that is dropped, behind each activation; with 0 there is no such layer.

    Raises:
        ValueError: a width is not positive, the activation is unknown, or the dropout is not in [0, 1).

    >>> sum(p.numel() for p in MLP(1, (50,), 1).parameters())
    151
    """

    def __init__(
        self, inputs: int, hidden: Sequence[int], outputs: int, activation: str = "tanh", dropout: float = 0.0
    ) -> None:
        widths = [inputs, *hidden, outputs]
        if min(widths) < 1:
            raise ValueError(f"every layer needs at least one unit, but the widths are {widths}.")
        layers: list[nn.Module] = []
        for width_in, width_out in zip(widths[:-2], widths[1:-1], strict=True):
            layers += [nn.Linear(width_in, width_out), activation_layer(activation), *dropping(dropout)]
        super().__init__(*layers, nn.Linear(widths[-2], widths[-1]))

    @classmethod
    def for_inputs(
        cls, input_shape: Sequence[int], outputs: int, hidden: Sequence[int] = (50, 50), **options: Any
    ) -> nn.Sequential:
        """An MLP for inputs of any shape: images are flattened first."""
        mlp = cls(math.prod(input_shape), hidden, outputs, **options)
        return mlp if len(input_shape) == 1 else nn.Sequential(nn.Flatten(), *mlp)
