"""LeNet-5, the network of most published comparisons on MNIST and Fashion-MNIST."""

from collections.abc import Sequence

from torch import nn

from osculate.networks.activations import activation_layer, dropping, pooling


class LeNet(nn.Sequential):
    """LeNet-5 (LeCun et al. 1998) with ReLU and max-pooling, as the Bayesian deep-learning literature uses it.

    With another activation it pools by the average, so that the network has second derivatives everywhere.

    Two 5 × 5 convolutions with 6 and 16 channels, then 120 and 84 hidden units: 61,706 parameters for 28 × 28
    grey images and ten classes.

    Args:
        outputs: number of outputs C.
        channels: input channels.
        size: height and width of the images.
        activation: a key of :data:`osculate.networks.activations.ACTIVATIONS`.
        dropout: share of the 120 and of the 84 hidden units that is dropped; with 0 there is no such layer.

    Raises:
        ValueError: the images are too small for two convolutions and two poolings, the activation is unknown, or the
            dropout is no share.

    >>> sum(p.numel() for p in LeNet().parameters())
    61706
    """

    def __init__(
        self,
        outputs: int = 10,
        channels: int = 1,
        size: int = 28,
        activation: str = "relu",
        dropout: float = 0.0,
    ) -> None:
        side = (size // 2 - 4) // 2  # padding keeps the first size; each pooling halves; the second 5x5 takes 4
        if side < 1:
            raise ValueError(f"LeNet needs images of at least 12 x 12 pixels, not {size} x {size}; try 'cnn'")
        super().__init__(
            nn.Conv2d(channels, 6, 5, padding=2),
            activation_layer(activation),
            pooling(activation),
            nn.Conv2d(6, 16, 5),
            activation_layer(activation),
            pooling(activation),
            nn.Flatten(),
            nn.Linear(16 * side * side, 120),
            activation_layer(activation),
            *dropping(dropout),
            nn.Linear(120, 84),
            activation_layer(activation),
            *dropping(dropout),
            nn.Linear(84, outputs),
        )

    @classmethod
    def for_inputs(
        cls, input_shape: Sequence[int], outputs: int, activation: str = "relu", dropout: float = 0.0
    ) -> "LeNet":
        """A LeNet for square images of shape ``(channels, size, size)``."""
        channels, size = square_image("lenet", input_shape)
        return cls(outputs, channels, size, activation, dropout)


def square_image(network: str, input_shape: Sequence[int]) -> tuple[int, int]:
    """Channels and side of a square image.

    Raises:
        ValueError: the inputs are not square images.
    """
    if len(input_shape) != 3 or input_shape[1] != input_shape[2]:
        raise ValueError(
            f"network {network!r} takes square images of shape (channels, size, size), not inputs of shape"
            f" {tuple(input_shape)}; for vectors use 'mlp'"
        )
    return input_shape[0], input_shape[1]
