"""Residual networks with bottleneck blocks."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from osculate.networks.lenet import square_image
from osculate.networks.stages import residual_stages


class Bottleneck(nn.Module):
    """1 × 1, 3 × 3 and 1 × 1 convolutions around a skip connection, each with a batch normalisation behind it.

    Args:
        inputs: channels of the input.
        width: channels of the 3 × 3 convolution; the output has four times as many.
        stride: stride of the 3 × 3 convolution.
    """

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
        )
        self.skip = nn.Identity() if stride == 1 and inputs == 4 * width else projection(inputs, 4 * width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return F.relu(self.skip(x) + self.residual(x))


def projection(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """A skip connection between different shapes."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Sequential):
    """A residual network with bottleneck blocks [he2016]; ResNet-50 by default: 23.5 M parameters with ten classes.

    Args:
        outputs: number of outputs C.
        channels: input channels.
        width: channels of the first stage.
        blocks: blocks of each stage; every stage but the first halves the resolution.

    Raises:
        ValueError: there is no stage, or the width is not positive.

    >>> sum(p.numel() for p in ResNet(width=4, blocks=(1, 1)).parameters())
    2926
    """

    def __init__(
        self, outputs: int = 10, channels: int = 3, width: int = 64, blocks: Sequence[int] = (3, 4, 6, 3)
    ) -> None:
        stages, inputs = residual_stages(Bottleneck, width, blocks, expansion=4)
        super().__init__(
            nn.Conv2d(channels, width, 7, 2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, padding=1),
            *stages,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(inputs, outputs),
        )

    @classmethod
    def for_inputs(
        cls, input_shape: Sequence[int], outputs: int, width: int = 64, blocks: Sequence[int] = (3, 4, 6, 3)
    ) -> "ResNet":
        """A ResNet for square images of shape ``(channels, size, size)``."""
        return cls(outputs, square_image("resnet", input_shape)[0], width, blocks)
