"""A small convolutional network for small images."""

from collections.abc import Sequence

from torch import nn

from osculate.networks.activations import activation_layer, dropping, pooling
from osculate.networks.lenet import square_image


class SmallCNN(nn.Sequential):
    """Two 3 × 3 convolutions with ReLU, each followed by max-pooling, then one linear layer.

    With 8 × 8 grey images and ten classes it has 6,090 parameters: enough for the digits, and small enough
    that every structure can be computed and compared. With another activation it pools by the average, so that it has
    second derivatives everywhere.

    Args:
        outputs: number of outputs C.
        channels: input channels.
        size: height and width of the images.
        width: channels of the first convolution; the second has twice as many.
        activation: a key of :data:`osculate.networks.activations.ACTIVATIONS`.
        dropout: share of the inputs of the linear layer that is dropped; with 0 there is no such layer.

    Raises:
        ValueError: the images are smaller than 4 × 4 pixels, the activation is unknown, or the dropout is no share.

    >>> sum(p.numel() for p in SmallCNN().parameters())
    6090
    """

    def __init__(
        self,
        outputs: int = 10,
        channels: int = 1,
        size: int = 8,
        width: int = 16,
        activation: str = "relu",
        dropout: float = 0.0,
    ) -> None:
        side = size // 4
        if side < 1:
            raise ValueError(f"SmallCNN needs images of at least 4 x 4 pixels, not {size} x {size}; try 'mlp'")
        super().__init__(
            nn.Conv2d(channels, width, 3, padding=1),
            activation_layer(activation),
            pooling(activation),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            activation_layer(activation),
            pooling(activation),
            nn.Flatten(),
            *dropping(dropout),
            nn.Linear(2 * width * side * side, outputs),
        )

    @classmethod
    def for_inputs(
        cls,
        input_shape: Sequence[int],
        outputs: int,
        width: int = 16,
        activation: str = "relu",
        dropout: float = 0.0,
    ) -> "SmallCNN":
        """A small CNN for square images of shape ``(channels, size, size)``."""
        channels, size = square_image("cnn", input_shape)
        return cls(outputs, channels, size, width, activation, dropout)
