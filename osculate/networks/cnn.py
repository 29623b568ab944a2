"""Convolutional networks without skip connections, for small images."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from osculate.networks.activations import activation_layer, dropping, pooling


class LeNet(nn.Sequential):
    """LeNet-5 (LeCun et al. 1998) with ReLU and max-pooling, as the Bayesian deep-learning literature uses it.

    With another activation it pools by the average, so that the network has second derivatives everywhere.

    Two 5 × 5 convolutions with 6 and 16 channels, then 120 and 84 hidden units: 61,706 parameters for 28 × 28
    grey images and ten classes.

    Args:
        outputs: Number of outputs C.
        channels: Input channels.
        size: Height and width of the images.
        activation: A key of :data:`osculate.networks.activations.ACTIVATIONS`.
        dropout: Share of the 120 and of the 84 hidden units that is dropped; with 0 there is no such layer.

    Raises:
        ValueError: the images are too small for two convolutions and two poolings, the activation is unknown, or the
            dropout is not in [0, 1).

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
            raise ValueError(f"LeNet needs images of at least 12 x 12 pixels, not {size} x {size}; try 'cnn'.")
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
    def for_inputs(cls, input_shape: Sequence[int], outputs: int, **options: Any) -> "LeNet":
        """A LeNet for square images of shape ``(channels, size, size)``."""
        return cls(outputs, *square_image("lenet", input_shape), **options)


class SmallCNN(nn.Sequential):
    """Two 3 × 3 convolutions with ReLU, each followed by max-pooling, then one linear layer.

    With 8 × 8 grey images and ten classes it has 6,090 parameters: enough for the digits, and small enough
    that every structure can be computed and compared. With another activation it pools by the average, so that it has
    second derivatives everywhere.

    Args:
        outputs: Number of outputs C.
        channels: Input channels.
        size: Height and width of the images.
        width: Channels of the first convolution; the second has twice as many.
        activation: A key of :data:`osculate.networks.activations.ACTIVATIONS`.
        dropout: Share of the inputs of the linear layer that is dropped; with 0 there is no such layer.

    Raises:
        ValueError: the images are smaller than 4 × 4 pixels, the activation is unknown, or the dropout is not in
            [0, 1).

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
            raise ValueError(f"SmallCNN needs images of at least 4 x 4 pixels, not {size} x {size}; try 'mlp'.")
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
    def for_inputs(cls, input_shape: Sequence[int], outputs: int, **options: Any) -> "SmallCNN":
        """A small CNN for square images of shape ``(channels, size, size)``."""
        return cls(outputs, *square_image("cnn", input_shape), **options)


class CNN3C3D(nn.Sequential):
    """The network 3c3d of DeepOBS [schneider2019], which comparisons on Fashion-MNIST and CIFAR-10 use.

    Convolutions with 64 (5 × 5), 96 (3 × 3) and 128 (3 × 3, padded) channels, each with ReLU and max-pooling of 3 × 3
    pixels with stride 2, then 512 and 256 hidden units: 895,210 parameters for 32 × 32 colour images and ten classes.
    Weights start as Xavier's, normal in convolutions and uniform in dense layers; biases start at zero.

    Args:
        outputs: Number of outputs C.
        channels: Input channels.
        size: Height and width of the images.

    Raises:
        ValueError: the images are smaller than 9 × 9 pixels.

    >>> sum(p.numel() for p in CNN3C3D().parameters())
    895210
    """

    def __init__(self, outputs: int = 10, channels: int = 3, size: int = 32) -> None:
        first, second = size - 4, (size - 4 + 1) // 2 - 2  # after the two convolutions without padding
        third = (second + 1) // 2
        side = (third + 1) // 2
        if second < 1:
            raise ValueError(f"3c3d needs images of at least 9 x 9 pixels, not {size} x {size}; try 'cnn'.")
        super().__init__(
            nn.Conv2d(channels, 64, 5),
            nn.ReLU(),
            halving(first),
            nn.Conv2d(64, 96, 3),
            nn.ReLU(),
            halving(second),
            nn.Conv2d(96, 128, 3, padding=1),
            nn.ReLU(),
            halving(third),
            nn.Flatten(),
            nn.Linear(128 * side * side, 512),
            nn.ReLU(),
            nn.Linear(512, 256),
            nn.ReLU(),
            nn.Linear(256, outputs),
        )
        for layer in self:
            if isinstance(layer, nn.Conv2d):
                nn.init.xavier_normal_(layer.weight)
            elif isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
            else:
                continue
            nn.init.zeros_(layer.get_parameter("bias"))

    @classmethod
    def for_inputs(cls, input_shape: Sequence[int], outputs: int) -> "CNN3C3D":
        """3c3d for square images of shape ``(channels, size, size)``."""
        return cls(outputs, *square_image("3c3d", input_shape))


def halving(size: int) -> nn.MaxPool2d:
    """Max-pooling of 3 × 3 pixels from ``size`` to half of it, rounded up.

    As TensorFlow pads: one pixel on every side of an odd size, one behind the end of an even size.
    """
    return nn.MaxPool2d(3, 2, padding=size % 2, ceil_mode=True)


class NormalisedCNN(nn.Sequential):
    """3 × 3 convolutions with stride 2, batch normalisation and ReLU behind each, an average over what is left of the
    image, and a linear layer; 47 k parameters by default.

    Args:
        outputs: Number of outputs C.
        channels: Input channels.
        widths: Output channels of each convolution.

    Raises:
        ValueError: there is no convolution, or one without channels.

    >>> sum(p.numel() for p in NormalisedCNN().parameters())
    46938
    """

    def __init__(self, outputs: int = 10, channels: int = 1, widths: Sequence[int] = (16, 32, 64, 40)) -> None:
        if not widths or min(widths) < 1:
            raise ValueError(f"NormalisedCNN needs positive widths for its convolutions, not {tuple(widths)}.")
        layers: list[nn.Module] = []
        for inputs, width in zip((channels, *widths), widths, strict=False):
            layers += [nn.Conv2d(inputs, width, 3, 2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], outputs))

    @classmethod
    def for_inputs(cls, input_shape: Sequence[int], outputs: int, **options: Any) -> "NormalisedCNN":
        """A network for square images of shape ``(channels, size, size)``."""
        return cls(outputs, square_image("normalised_cnn", input_shape)[0], **options)


def square_image(network: str, input_shape: Sequence[int]) -> tuple[int, int]:
    """Channels and side of a square image.

    Raises:
        ValueError: the inputs are not square images.
    """
    if len(input_shape) != 3 or input_shape[1] != input_shape[2]:
        raise ValueError(
            f"network {network!r} takes square images of shape (channels, size, size), not inputs of shape"
            f" {tuple(input_shape)}; for vectors use 'mlp'."
        )
    return input_shape[0], input_shape[1]
