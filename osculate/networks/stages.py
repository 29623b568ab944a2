"""The stages of residual networks: blocks of growing width and falling resolution."""

from collections.abc import Callable, Sequence

from torch import nn


def residual_stages(
    block: Callable[[int, int, int], nn.Module],
    width: int,
    blocks: Sequence[int],
    expansion: int = 1,
    inputs: int | None = None,
) -> tuple[list[nn.Module], int]:
    """The blocks of all stages, and the channels of the last one's output.

    Args:
        block: makes a block from its input channels, its width and its stride.
        width: channels of the first stage; each later stage doubles them and halves the resolution.
        blocks: number of blocks of each stage.
        expansion: output channels of a block over its width.
        inputs: channels that the first block gets; its width where not given.

    Raises:
        ValueError: there is no stage, or the width is not positive.
    """
    if width < 1 or not blocks or min(blocks) < 1:
        raise ValueError(f"a ResNet needs a positive width and blocks in every stage, not {width} and {tuple(blocks)}")
    stages, inputs = [], width if inputs is None else inputs
    for number, count in enumerate(blocks):
        size = width * 2**number
        for place in range(count):
            stages.append(block(inputs, size, 2 if number and not place else 1))
            inputs = expansion * size
    return stages, inputs
