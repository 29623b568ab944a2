"""The vision transformer."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from osculate.networks.lenet import square_image


class ViT(nn.Module):
    """A transformer encoder over patches of an image and a class token [dosovitskiy2021].

    By default the blocks are those of ViT-Tiny [touvron2021]: 5.4 M parameters.

    Args:
        outputs: number of outputs C.
        input_shape: (channels, size, size) of the images.
        patch: height and width of a patch, which must divide the size.
        width: features of a token.
        depth: number of blocks.
        heads: attention heads.

    Raises:
        ValueError: the inputs are not square images, patches do not tile them, or heads do not divide the width.

    >>> ViT(2, (1, 8, 8), patch=4, width=6, depth=1, heads=2)(torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        outputs: int = 10,
        input_shape: Sequence[int] = (3, 32, 32),
        patch: int = 4,
        width: int = 192,
        depth: int = 12,
        heads: int = 3,
    ) -> None:
        channels, size = square_image("vit", input_shape)
        if patch < 1 or size % patch:
            raise ValueError(f"patches of {patch} x {patch} do not tile images of {size} x {size}: give another patch")
        if width % heads:
            raise ValueError(f"{heads} heads do not divide the width {width}")
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, 1 + (size // patch) ** 2, width))
        self.blocks = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
                for _ in range(depth)
            )
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, outputs)

    @classmethod
    def for_inputs(
        cls,
        input_shape: Sequence[int],
        outputs: int,
        patch: int | None = None,
        width: int = 192,
        depth: int = 12,
        heads: int = 3,
    ) -> "ViT":
        """A ViT for square images; by default the smallest patches that tile them with at most eight a side."""
        size = square_image("vit", input_shape)[1]
        if patch is None:
            patch = next(p for p in range(-(-size // 8), size + 1) if size % p == 0)
        return cls(outputs, input_shape, patch, width, depth, heads)

    def forward(self, x: Tensor) -> Tensor:
        """One vector of outputs for every image, read off the class token."""
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], 1) + self.position
        return self.head(self.norm(self.blocks(tokens))[:, 0])
