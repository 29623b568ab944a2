"""U-Nets: one output for every pixel, and the untrained network of the deep image prior."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Logits beyond which the sigmoid is flat in single precision: weights shall not be drawn there.
SATURATED = 15.0


class UNet(nn.Module):
    """An encoder, a decoder, and skip connections between layers of the same resolution [ronneberger2015].

    Images (N, channels, H, W) become (N, outputs, H, W), for segmentation or regression of every pixel. Halving is by
    max-pooling, doubling by repeating pixels, so that any height and width goes.

    Args:
        outputs: Number of output channels C.
        channels: Input channels.
        width: Channels at full resolution; doubled with every halving of the resolution.
        depth: Number of times the resolution is halved.

    Raises:
        ValueError: width or depth is not positive.

    >>> UNet(2, 1, width=2, depth=2)(torch.zeros(1, 1, 9, 6)).shape
    torch.Size([1, 2, 9, 6])
    """

    def __init__(self, outputs: int = 2, channels: int = 3, width: int = 16, depth: int = 3) -> None:
        if width < 1 or depth < 1:
            raise ValueError(f"a U-Net needs a positive width and depth, not {width} and {depth}.")
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            convolutions(inputs, size) for inputs, size in zip([channels, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(convolutions(size + 2 * size, size) for size in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, outputs, 1)

    @classmethod
    def for_inputs(cls, input_shape: Sequence[int], outputs: int, **options: Any) -> "UNet":
        """A U-Net for images of shape ``(channels, height, width)``."""
        return cls(outputs, image_channels("unet", input_shape), **options)

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
    layers: list[nn.Module] = []
    for before in (inputs, outputs):
        layers += [nn.Conv2d(before, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class SkipUNet(nn.Module):
    """A U-Net with few skipped channels, for images with values in [0, 1]. [antoran2023dip; ulyanov2018]

    Images (N, channels, H, W) become (N, channels, H, W). Halving is by strided convolutions, doubling by bilinear
    interpolation, so that any height and width goes. Its 3 × 3 convolutions stand in blocks (``inlet``, ``down.0``, …,
    ``up.0``, …), the 1 × 1 convolutions of the skips and the outlet by themselves.

    Args:
        channels: Number of channels of the images.
        width: Channels of every block.
        depth: Number of times the resolution is halved.
        skipped: Channels that a skip connection carries.
        normalised: Group normalisation behind every 3 × 3 convolution; large images train faster with it.
        dropout: Probability of dropping a channel behind every 3 × 3 convolution; of the baseline with MC dropout.

    Raises:
        ValueError: a size is not positive.

    >>> SkipUNet(width=4)(torch.zeros(1, 1, 9, 6)).shape
    torch.Size([1, 1, 9, 6])
    """

    def __init__(
        self,
        channels: int = 1,
        width: int = 32,
        depth: int = 2,
        skipped: int = 4,
        normalised: bool = False,
        dropout: float = 0.0,
    ) -> None:
        if min(channels, width, depth, skipped) < 1:
            raise ValueError(f"a U-Net needs positive sizes, not {channels}, {width}, {depth}, {skipped}.")
        super().__init__()

        def block(inputs: int, strides: Sequence[int]) -> nn.Sequential:
            layers: list[nn.Module] = []
            for before, stride in zip((inputs, width), strides, strict=False):
                layers += [nn.Conv2d(before, width, 3, stride=stride, padding=1)]
                layers += [nn.GroupNorm(4 if width % 4 == 0 else 1, width)] if normalised else []
                layers += [nn.LeakyReLU(0.2), *([nn.Dropout2d(dropout)] if dropout else [])]
            return nn.Sequential(*layers)

        self.inlet = block(channels, (1,))
        self.down = nn.ModuleList(block(width, (2, 1)) for _ in range(depth))
        self.skip = nn.ModuleList(nn.Sequential(nn.Conv2d(width, skipped, 1), nn.LeakyReLU(0.2)) for _ in range(depth))
        self.up = nn.ModuleList(block(width + skipped, (1, 1)) for _ in range(depth))
        self.outlet = nn.Sequential(nn.Conv2d(width, channels, 1))

    @torch.no_grad()
    def show(self, x: Tensor, brightness: float) -> None:
        """Shift the bias of the last layer, so that the image of x is on average about as bright.

        Weights that are drawn show everything in grey. On its way to a dark image an optimiser then carries all pixels
        into the flat end of the sigmoid at once, from where some never return.

        Args:
            x: (N, C, H, W).
            brightness: Mean brightness of the output, in (0, 1).
        """
        now, wanted = self.eval()(x).mean(), torch.tensor(brightness).to(x)
        self.outlet[0].bias += wanted.logit() - now.logit()
        self.train()

    def forward(self, x: Tensor) -> Tensor:
        """An image with values in (0, 1)."""
        x = self.inlet(x)
        passed = []
        for down, skip in zip(self.down, self.skip, strict=True):
            passed.append(skip(x))
            x = down(x)
        for up in self.up:
            aside = passed.pop()
            larger = F.interpolate(x, size=aside.shape[-2:], mode="bilinear", align_corners=True)
            x = up(torch.cat([larger, aside], 1))
        return torch.sigmoid(self.outlet(x).clamp(-SATURATED, SATURATED))


def image_channels(network: str, input_shape: Sequence[int], instead: str = "mlp") -> int:
    """Channels of an image of any height and width.

    Raises:
        ValueError: the inputs are not images.
    """
    if len(input_shape) != 3:
        raise ValueError(
            f"network {network!r} takes images of shape (channels, height, width), not inputs of shape "
            f"{tuple(input_shape)}; for vectors use {instead!r}."
        )
    return input_shape[0]
