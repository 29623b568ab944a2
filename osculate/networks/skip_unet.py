"""The U-Net of the deep image prior: an untrained network whose outputs look like images."""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Logits beyond which the sigmoid is flat in single precision: weights shall not be drawn there.
SATURATED = 15.0


class SkipUNet(nn.Module):
    """A U-Net with few skipped channels, for images with values in [0, 1]. [antoran2023dip; ulyanov2018]

    Images (N, channels, H, W) become (N, channels, H, W). Halving is by strided convolutions, doubling by bilinear
    interpolation, so that any height and width goes. Its 3 × 3 convolutions stand in blocks (``inlet``, ``down.0``, …,
    ``up.0``, …), the 1 × 1 convolutions of the skips and the outlet by themselves.

    Args:
        channels: number of channels of the images.
        width: channels of every block.
        depth: number of times the resolution is halved.
        skipped: channels that a skip connection carries.
        normalised: group normalisation behind every 3 × 3 convolution; large images train faster with it.
        dropout: probability of dropping a channel behind every 3 × 3 convolution; of the baseline with MC dropout.

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
            sizes = [inputs] + [width] * len(strides)
            layers = [
                layer
                for before, stride in zip(sizes, strides, strict=False)
                for layer in _convolution(before, width, stride, normalised, dropout)
            ]
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
            brightness: mean brightness of the output, in (0, 1).
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


def _convolution(inputs: int, outputs: int, stride: int, normalised: bool, dropout: float) -> Iterator[nn.Module]:
    yield nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)
    if normalised:
        yield nn.GroupNorm(4 if outputs % 4 == 0 else 1, outputs)
    yield nn.LeakyReLU(0.2)
    if dropout:
        yield nn.Dropout2d(dropout)
