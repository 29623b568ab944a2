"""Residual networks without normalisation layers, made trainable by their initial weights."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from osculate.networks.lenet import square_image
from osculate.networks.stages import residual_stages


class Bias(nn.Module):
    """x + b with one number b, at first 0."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """The input, shifted."""
        return x + self.bias


class Scale(nn.Module):
    """s x with one number s, at first 1."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """The input, scaled."""
        return x * self.scale


class FixupBlock(nn.Module):
    """ReLU and a 3 × 3 convolution, twice, with a bias before each and a scale behind; the skip carries the sum.

    Args:
        inputs: channels of the input.
        outputs: channels of the output.
        stride: stride of the first convolution.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bias1, self.bias2, self.bias3, self.bias4 = Bias(), Bias(), Bias(), Bias()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.scale = Scale()
        self.skip = None if stride == 1 and inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        active = self.bias2(F.relu(self.bias1(x)))
        inner = self.bias4(F.relu(self.bias3(self.conv1(active))))
        skipped = x if self.skip is None else self.skip(active)
        return skipped + self.scale(self.conv2(inner))


class FixupResNet(nn.Sequential):
    r"""A wide residual network without normalisation [zhang2019; zagoruyko2016]; by default 2.7 M parameters, WRN-16-4.

    Initial weights take the part of the normalisation: those of the last layer and of the second convolution of each
    of the L blocks are zero, those of the first are :math:`N(0, 2/(k L))`, all others :math:`N(0, 2/k)`, with
    k = outputs · kernel size. One bias stands before each convolution and each activation, one scale behind each block.
    Without normalisation no layer can be rescaled at no cost, so that each has a well-determined prior precision.

    Args:
        outputs: number of outputs C.
        channels: input channels.
        width: channels of the first stage; each stage doubles it and, but for the first, halves the resolution.
        blocks: blocks of each stage.
        stem: channels of the first convolution.

    Raises:
        ValueError: there is no stage, or a width is not positive.

    >>> net = FixupResNet(width=4, blocks=(1, 1), stem=2)
    >>> sum(p.numel() for p in net.parameters()), net(torch.randn(5, 3, 8, 8)).abs().max().item()
    (1276, 0.0)
    """

    def __init__(
        self,
        outputs: int = 10,
        channels: int = 3,
        width: int = 64,
        blocks: Sequence[int] = (2, 2, 2),
        stem: int = 16,
    ) -> None:
        if stem < 1:
            raise ValueError(f"a Fixup ResNet needs channels in its first convolution, not {stem}")
        stages, inputs = residual_stages(FixupBlock, width, blocks, inputs=stem)
        super().__init__(
            nn.Conv2d(channels, stem, 3, padding=1, bias=False),
            *stages,
            Bias(),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            Bias(),
            nn.Linear(inputs, outputs),
        )
        self._initialise(sum(blocks))

    def _initialise(self, count: int) -> None:
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        for block in self.modules():
            if isinstance(block, FixupBlock):
                with torch.no_grad():
                    block.conv1.weight.mul_(count**-0.5)
                nn.init.zeros_(block.conv2.weight)
        for parameter in self[-1].parameters():
            nn.init.zeros_(parameter)

    @classmethod
    def for_inputs(
        cls,
        input_shape: Sequence[int],
        outputs: int,
        width: int = 64,
        blocks: Sequence[int] = (2, 2, 2),
        stem: int = 16,
    ) -> "FixupResNet":
        """A Fixup ResNet for square images of shape ``(channels, size, size)``."""
        return cls(outputs, square_image("fixup_resnet", input_shape)[0], width, blocks, stem)
