"""3c3d: three convolutions and three dense layers, for small images in colour."""

from collections.abc import Sequence

from torch import nn

from osculate.networks.lenet import square_image


class CNN3C3D(nn.Sequential):
    """The network 3c3d of DeepOBS [schneider2019], which comparisons on Fashion-MNIST and CIFAR-10 use.

    Convolutions with 64 (5 × 5), 96 (3 × 3) and 128 (3 × 3, padded) channels, each with ReLU and max-pooling of 3 × 3
    pixels with stride 2, then 512 and 256 hidden units: 895,210 parameters for 32 × 32 colour images and ten classes.
    Weights start as Xavier's, normal in convolutions and uniform in dense layers; biases start at zero.

    Args:
        outputs: number of outputs C.
        channels: input channels.
        size: height and width of the images.

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
            raise ValueError(f"3c3d needs images of at least 9 x 9 pixels, not {size} x {size}; try 'cnn'")
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
        channels, size = square_image("3c3d", input_shape)
        return cls(outputs, channels, size)


def halving(size: int) -> nn.MaxPool2d:
    """Max-pooling of 3 × 3 pixels from ``size`` to half of it, rounded up.

    As TensorFlow pads: one pixel on every side of an odd size, one behind the end of an even size.
    """
    return nn.MaxPool2d(3, 2, padding=size % 2, ceil_mode=True)
