"""Adapters of low rank (LoRA) for a causal transformer, and a classifier that is tuned by them."""

import copy
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

import osculate as osc
from experiments.foundation.source import END


class Adapted(nn.Module):
    """A frozen linear layer plus an adapter of low rank, in the names of PEFT: W x + B A x. [hu2022]

    B starts at zero. The adapter may be of another floating type.

    Args:
        base: The layer, which is frozen.
        rank: Rows of A.
        dropout: Probability of dropout at the adapter's input.
    """

    def __init__(self, base: nn.Linear, rank: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.dropout = nn.Dropout(dropout)
        up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(up.weight)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": up})

    def forward(self, x: Tensor) -> Tensor:
        """W x + B A x."""
        down = self.lora_A["default"]
        return self.base_layer(x) + self.lora_B["default"](down(self.dropout(x).to(down.weight.dtype))).to(x.dtype)


class Classifier(nn.Module):
    """A frozen causal transformer with adapters around attention, whose mean features a linear head classifies.

    Args:
        base: The language model; it is copied.
        classes: C.
        rank: Rank of the adapters.
        dropout: Probability of dropout at the adapters' inputs.
    """

    def __init__(self, base: osc.networks.GPT, classes: int, rank: int, dropout: float) -> None:
        super().__init__()
        adapted: Any = copy.deepcopy(base).requires_grad_(False)
        adapted.head = nn.Identity()
        for block in adapted.blocks:
            block.attend = Adapted(block.attend, rank, dropout)
            block.project = Adapted(block.project, rank, dropout)
        self.base = adapted
        self.head = nn.Linear(base.norm.normalized_shape[0], classes)

    def forward(self, tokens: Int[Tensor, "N T"]) -> Float[Tensor, "N C"]:
        """Logits of the classes."""
        counted = (tokens != END).unsqueeze(-1).to(self.head.weight.dtype)
        features = self.base(tokens) * counted
        return self.head(features.sum(1) / counted.sum(1))
