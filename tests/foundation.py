"""A small causal language model with adapters, in the way of Hugging Face and PEFT: mappings in, an object out."""

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from experiments.foundation.adapters import Adapted

VOCABULARY, WIDTH, RANK = 53, 16, 2


class Block(nn.Module):
    """Attention and a multilayer perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.q_proj, self.v_proj = (Adapted(nn.Linear(WIDTH, WIDTH), RANK) for _ in "qv")
        self.k_proj, self.up = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, h: Tensor) -> Tensor:
        x = self.norms[0](h)
        q, k, v = (each(x).unflatten(-1, (2, -1)).transpose(1, 2) for each in (self.q_proj, self.k_proj, self.v_proj))
        h = h + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return h + self.down(F.silu(self.up(self.norms[1](h))))


class CausalModel(nn.Module):
    """Logits of the next token at each position, or at the last ones alone, as ``.logits``."""

    def __init__(self, recomputes: bool = False, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, WIDTH)
        self.layers = nn.ModuleList([Block(), Block()])
        self.lm_head = nn.Linear(WIDTH, vocabulary, bias=False)
        self.recomputes = recomputes

    def forward(self, input_ids: Tensor, logits_to_keep: int = 0, **_: Any) -> Any:
        h = self.embed(input_ids)
        for layer in self.layers:
            h = checkpoint(layer, h, use_reentrant=False) if self.recomputes else layer(h)
        return SimpleNamespace(logits=self.lm_head(h[:, -logits_to_keep:]))


def causal_model(
    dtype: torch.dtype = torch.float64, adapters: torch.dtype | None = None, **options: Any
) -> CausalModel:
    """The model with a frozen base, and adapters that matter."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = CausalModel(**options).double()
        for name, p in model.named_parameters():
            if "lora_B" in name:  # zero at first
                nn.init.uniform_(p, -(RANK**-0.5), RANK**-0.5)
    for name, p in model.named_parameters():
        p.requires_grad_("lora_" in name)
        p.data = p.data.to(dtype if "lora_" not in name or adapters is None else adapters)
    return model.eval()


def sequences(size: int = 6, length: int = 5, vocabulary: int = VOCABULARY) -> tuple[dict[str, Tensor], Tensor]:
    """Token sequences with their next tokens, of which the first are ignored (−100)."""
    ids = torch.randint(vocabulary, (size, length + 1), generator=torch.Generator().manual_seed(1))
    y = ids[:, 1:].clone()
    y[:, :2] = -100
    return {"input_ids": ids[:, :-1]}, y
