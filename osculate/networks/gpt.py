"""A small language model: a decoder that predicts every next token."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CausalBlock(nn.Module):
    """Self-attention to earlier positions, and two linear layers, each around a skip connection.

    Args:
        width: features of a token.
        heads: attention heads.
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
        context: the largest T.
        width: features of a token.
        depth: number of blocks.
        heads: attention heads.

    Raises:
        ValueError: the heads do not divide the width.

    >>> GPT(11, 7, width=8, depth=1, heads=2)(torch.zeros(3, 5, dtype=torch.long)).shape
    torch.Size([3, 5, 11])
    """

    def __init__(self, vocabulary: int, context: int = 64, width: int = 64, depth: int = 2, heads: int = 2) -> None:
        if width % heads:
            raise ValueError(f"{heads} heads do not divide the width {width}")
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(CausalBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    @classmethod
    def for_inputs(
        cls, input_shape: Sequence[int], outputs: int, width: int = 64, depth: int = 2, heads: int = 2
    ) -> "GPT":
        """A GPT for sequences of shape ``(context,)`` over a vocabulary of as many tokens as outputs.

        Raises:
            ValueError: the inputs are not sequences of tokens.
        """
        if len(input_shape) != 1:
            raise ValueError(
                f"network 'gpt' takes sequences of tokens of shape (context,), not inputs of shape {tuple(input_shape)}"
            )
        return cls(outputs, input_shape[0], width, depth, heads)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.token(tokens) + self.position(places))))
