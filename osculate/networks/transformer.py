"""Transformers: over patches of an image, and over tokens to predict the next one."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from osculate.networks.cnn import square_image


class ViT(nn.Module):
    """A transformer encoder over patches of an image and a class token [dosovitskiy2021].

    By default the blocks are those of ViT-Tiny [touvron2021]: 5.4 M parameters.

    Args:
        outputs: Number of outputs C.
        input_shape: (channels, size, size) of the images.
        patch: Height and width of a patch, which must divide the size.
        width: Features of a token.
        depth: Number of blocks.
        heads: Attention heads.

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
            raise ValueError(f"patches of {patch} x {patch} do not tile images of {size} x {size}: pass another patch.")
        if width % heads:
            raise ValueError(f"{heads} heads do not divide the width {width}: pass another number of heads.")
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, 1 + (size // patch) ** 2, width))
        block = partial(nn.TransformerEncoderLayer, batch_first=True, norm_first=True)
        self.blocks = nn.Sequential(*(block(width, heads, 4 * width, 0.0, "gelu") for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, outputs)

    @classmethod
    def for_inputs(cls, input_shape: Sequence[int], outputs: int, patch: int | None = None, **options: Any) -> "ViT":
        """A ViT for square images; by default the smallest patches that tile them with at most eight per side."""
        size = square_image("vit", input_shape)[1]
        if patch is None:
            patch = next(p for p in range(-(-size // 8), size + 1) if size % p == 0)
        return cls(outputs, input_shape, patch, **options)

    def forward(self, x: Tensor) -> Tensor:
        """One vector of outputs for every image, read off the class token."""
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), tokens], 1) + self.position
        return self.head(self.norm(self.blocks(tokens))[:, 0])


class CausalBlock(nn.Module):
    """Self-attention to earlier positions, and two linear layers, each around a skip connection.

    Args:
        width: Features of a token.
        heads: Attention heads.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output (N, T, width)."""
        q, k, v = self.attend(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """A causal transformer [radford2019]: tokens (N, T) to logits (N, T, V) of each next token.

    Args:
        vocabulary: V, the number of tokens.
        context: The largest T.
        width: Features of a token.
        depth: Number of blocks.
        heads: Attention heads.

    Raises:
        ValueError: the heads do not divide the width.

    >>> GPT(11, 7, width=8, depth=1, heads=2)(torch.zeros(3, 5, dtype=torch.long)).shape
    torch.Size([3, 5, 11])
    """

    def __init__(self, vocabulary: int, context: int = 64, width: int = 64, depth: int = 2, heads: int = 2) -> None:
        if width % heads:
            raise ValueError(f"{heads} heads do not divide the width {width}: pass another number of heads.")
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(CausalBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    @classmethod
    def for_inputs(cls, input_shape: Sequence[int], outputs: int, **options: Any) -> "GPT":
        """A GPT for sequences of shape ``(context,)`` over a vocabulary of as many tokens as outputs.

        Raises:
            ValueError: the inputs are not sequences of tokens.
        """
        if len(input_shape) != 1:
            raise ValueError(
                f"network 'gpt' takes token sequences of shape (context,), got inputs of shape {tuple(input_shape)}."
            )
        return cls(outputs, input_shape[0], **options)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.token(tokens) + self.position(places))))
