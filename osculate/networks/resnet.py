"""Residual networks: with bottleneck blocks, with the activation before the convolution, and without normalisation."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from osculate.networks.activations import activation_layer
from osculate.networks.cnn import square_image


def residual_stages(
    block: Callable[[int, int, int], nn.Module],
    width: int,
    blocks: Sequence[int],
    expansion: int = 1,
    inputs: int | None = None,
) -> tuple[list[nn.Module], int]:
    """The blocks of all stages, and the channels of the last one's output.

    Args:
        block: Makes a block from its input channels, its width and its stride.
        width: Channels of the first stage; each later stage doubles them and halves the resolution.
        blocks: Number of blocks of each stage.
        expansion: Output channels of a block over its width.
        inputs: Channels that the first block gets; its width where not given.

    Raises:
        ValueError: there is no stage, or the width is not positive.
    """
    if width < 1 or not blocks or min(blocks) < 1:
        raise ValueError(f"a ResNet needs a positive width and blocks in every stage, not {width} and {tuple(blocks)}.")
    stages, inputs = [], width if inputs is None else inputs
    for number, count in enumerate(blocks):
        size = width * 2**number
        for place in range(count):
            stages.append(block(inputs, size, 2 if number and not place else 1))
            inputs = expansion * size
    return stages, inputs


class Bottleneck(nn.Module):
    """1 × 1, 3 × 3 and 1 × 1 convolutions around a skip connection, each with a batch normalisation behind it.

    Args:
        inputs: Channels of the input.
        width: Channels of the 3 × 3 convolution; the output has four times as many.
        stride: Stride of the 3 × 3 convolution.
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
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or inputs != 4 * width:
            self.skip = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return F.relu(self.skip(x) + self.residual(x))


class ResNet(nn.Sequential):
    """A residual network with bottleneck blocks [he2016]; ResNet-50 by default: 23.5 M parameters with ten classes.

    Args:
        outputs: Number of outputs C.
        channels: Input channels.
        width: Channels of the first stage.
        blocks: Blocks of each stage; every stage but the first halves the resolution.

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
    def for_inputs(cls, input_shape: Sequence[int], outputs: int, **options: Any) -> "ResNet":
        """A ResNet for square images of shape ``(channels, size, size)``."""
        return cls(outputs, square_image("resnet", input_shape)[0], **options)


class PreActBlock(nn.Module):
    """Normalisation, activation and a 3 × 3 convolution, twice; the skip connection carries the sums unchanged.

    Args:
        inputs: Channels of the input.
        outputs: Channels of the output.
        stride: Stride of the first convolution.
        activation: Name of the activation.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, activation: str = "relu") -> None:
        super().__init__()
        self.activation = activation_layer(activation)
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.skip = None if stride == 1 and inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        active = self.activation(self.norm1(x))
        skipped = x if self.skip is None else self.skip(active)
        return skipped + self.conv2(self.activation(self.norm2(self.conv1(active))))


class PreActResNet(nn.Sequential):
    """A pre-activation residual network [he2016b] for small images; PreAct ResNet-18 by default: 11.2 M parameters.

    Args:
        outputs: Number of outputs C.
        channels: Input channels.
        width: Channels of the first stage.
        blocks: Blocks of each stage; every stage but the first halves the resolution.
        activation: A key of :data:`osculate.networks.activations.ACTIVATIONS`.

    Raises:
        ValueError: there is no stage, the width is not positive, or the activation is unknown.

    >>> sum(p.numel() for p in PreActResNet(width=4, blocks=(1, 1)).parameters())
    1438
    """

    def __init__(
        self,
        outputs: int = 10,
        channels: int = 3,
        width: int = 64,
        blocks: Sequence[int] = (2, 2, 2, 2),
        activation: str = "relu",
    ) -> None:
        stages, inputs = residual_stages(partial(PreActBlock, activation=activation), width, blocks)
        super().__init__(
            nn.Conv2d(channels, width, 3, padding=1, bias=False),
            *stages,
            nn.BatchNorm2d(inputs),
            activation_layer(activation),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(inputs, outputs),
        )

    @classmethod
    def for_inputs(cls, input_shape: Sequence[int], outputs: int, **options: Any) -> "PreActResNet":
        """A pre-activation ResNet for square images of shape ``(channels, size, size)``."""
        return cls(outputs, square_image("preact_resnet", input_shape)[0], **options)


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
        inputs: Channels of the input.
        outputs: Channels of the output.
        stride: Stride of the first convolution.
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
        outputs: Number of outputs C.
        channels: Input channels.
        width: Channels of the first stage; each stage doubles it and, but for the first, halves the resolution.
        blocks: Blocks of each stage.
        stem: Channels of the first convolution.

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
            raise ValueError(f"a Fixup ResNet needs channels in its first convolution, not {stem}.")
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
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        for block in self.modules():
            if isinstance(block, FixupBlock):
                with torch.no_grad():
                    block.conv1.weight.mul_(sum(blocks) ** -0.5)
                nn.init.zeros_(block.conv2.weight)
        for parameter in self[-1].parameters():
            nn.init.zeros_(parameter)

    @classmethod
    def for_inputs(cls, input_shape: Sequence[int], outputs: int, **options: Any) -> "FixupResNet":
        """A Fixup ResNet for square images of shape ``(channels, size, size)``."""
        return cls(outputs, square_image("fixup_resnet", input_shape)[0], **options)
