"""The residual network with the activation before the convolution."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from osculate.networks.activations import activation_layer
from osculate.networks.lenet import square_image
from osculate.networks.stages import residual_stages


class PreActBlock(nn.Module):
    """Normalisation, activation and a 3 × 3 convolution, twice; the skip connection carries the sums unchanged.

    Args:
        inputs: channels of the input.
        outputs: channels of the output.
        stride: stride of the first convolution.
        activation: name of the activation.
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
        outputs: number of outputs C.
        channels: input channels.
        width: channels of the first stage.
        blocks: blocks of each stage; every stage but the first halves the resolution.
        activation: a key of :data:`osculate.networks.activations.ACTIVATIONS`.

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
    def for_inputs(
        cls,
        input_shape: Sequence[int],
        outputs: int,
        width: int = 64,
        blocks: Sequence[int] = (2, 2, 2, 2),
        activation: str = "relu",
    ) -> "PreActResNet":
        """A pre-activation ResNet for square images of shape ``(channels, size, size)``."""
        return cls(outputs, square_image("preact_resnet", input_shape)[0], width, blocks, activation)
