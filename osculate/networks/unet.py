"""The U-Net: one output for every pixel."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class UNet(nn.Module):
    """An encoder, a decoder, and skip connections between layers of the same resolution [ronneberger2015].

    Images (N, channels, H, W) become (N, outputs, H, W), for segmentation or regression of every pixel. Halving is by
    max-pooling, doubling by repeating pixels, so that any height and width goes.

    Args:
        outputs: number of output channels C.
        channels: input channels.
        width: channels at full resolution; doubled with every halving of the resolution.
        depth: number of times the resolution is halved.

    Raises:
        ValueError: width or depth is not positive.

    >>> UNet(2, 1, width=2, depth=2)(torch.zeros(1, 1, 9, 6)).shape
    torch.Size([1, 2, 9, 6])
    """

    def __init__(self, outputs: int = 2, channels: int = 3, width: int = 16, depth: int = 3) -> None:
        if width < 1 or depth < 1:
            raise ValueError(f"a U-Net needs a positive width and depth, not {width} and {depth}")
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            convolutions(inputs, size) for inputs, size in zip([channels, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(convolutions(size + 2 * size, size) for size in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, outputs, 1)

    @classmethod
    def for_inputs(cls, input_shape: Sequence[int], outputs: int, width: int = 16, depth: int = 3) -> "UNet":
        """A U-Net for images of shape ``(channels, height, width)``."""
        return cls(outputs, image_channels("unet", input_shape), width, depth)

    def forward(self, x: Tensor) -> Tensor:
        """One vector of outputs for every pixel."""
        skipped = []
        for number, down in enumerate(self.down):
            x = down(F.max_pool2d(x, 2, ceil_mode=True) if number else x)
            skipped.append(x)
        skipped.pop()
        for up in self.up:
            skip = skipped.pop()
            x = up(torch.cat([skip, F.interpolate(x, size=skip.shape[-2:])], 1))
        return self.head(x)


def convolutions(inputs: int, outputs: int) -> nn.Sequential:
    """Two 3 × 3 convolutions, each with batch normalisation and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def image_channels(network: str, input_shape: Sequence[int], instead: str = "mlp") -> int:
    """Channels of an image of any height and width.

    Raises:
        ValueError: the inputs are not images.
    """
    if len(input_shape) != 3:
        raise ValueError(
            f"network {network!r} takes images of shape (channels, height, width), not inputs of shape "
            f"{tuple(input_shape)}; for vectors use {instead!r}"
        )
    return input_shape[0]
