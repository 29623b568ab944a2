"""A small convolutional network with batch normalisation."""

from collections.abc import Sequence

from torch import nn

from osculate.networks.lenet import square_image


class NormalisedCNN(nn.Sequential):
    """3 × 3 convolutions with stride 2, batch normalisation and ReLU behind each, an average over what is left of the
    image, and a linear layer; 47 k parameters by default.

    Args:
        outputs: number of outputs C.
        channels: input channels.
        widths: output channels of each convolution.

    Raises:
        ValueError: there is no convolution, or one without channels.

    >>> sum(p.numel() for p in NormalisedCNN().parameters())
    46938
    """

    def __init__(self, outputs: int = 10, channels: int = 1, widths: Sequence[int] = (16, 32, 64, 40)) -> None:
        if not widths or min(widths) < 1:
            raise ValueError(f"NormalisedCNN needs positive widths for its convolutions, not {tuple(widths)}")
        layers: list[nn.Module] = []
        for inputs, width in zip((channels, *widths), widths, strict=False):
            layers += [nn.Conv2d(inputs, width, 3, 2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], outputs))

    @classmethod
    def for_inputs(
        cls, input_shape: Sequence[int], outputs: int, widths: Sequence[int] = (16, 32, 64, 40)
    ) -> "NormalisedCNN":
        """A network for square images of shape ``(channels, size, size)``."""
        return cls(outputs, square_image("normalised_cnn", input_shape)[0], widths)
