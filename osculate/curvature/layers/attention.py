"""Multi-head attention, which torch hides in one call, as linear layers and a product of activations."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from osculate.curvature.layers._base import rewrite


@rewrite(F.multi_head_attention_forward)
def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """Attention with the batch first inside: the arguments put the batch second, (L, N, E).

    ``is_causal`` is a hint that comes with the mask itself. As in torch it takes the mask's place where weights are not
    asked for and nothing is padded, which also closes keys behind the given ones.
    """
    if query.ndim != 3 or (training and dropout_p > 0) or static_k is not None or static_v is not None:
        return NotImplemented
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight
    q, k, v = _projections((query, key, value), weights, in_proj_bias)
    n = len(q)
    if bias_k is not None and bias_v is not None:
        k, v = (torch.cat([t, b.expand(n, -1, -1)], 1) for t, b in ((k, bias_k), (v, bias_v)))
    if add_zero_attn:
        k, v = (F.pad(t, (0, 0, 0, 1)) for t in (k, v))
    causal = is_causal and key_padding_mask is None and not need_weights
    mask = None if causal else _mask(attn_mask, key_padding_mask, n, k.shape[1], q)
    q, k, v = (t.unflatten(-1, (num_heads, -1)).transpose(1, 2) for t in (q, k, v))  # (N, H, L, E/H)
    weight = None
    if need_weights:
        logits = q @ k.mT / math.sqrt(q.shape[-1])
        weight = F.softmax(logits if mask is None else logits + mask, -1)
        attended = weight @ v
    else:
        attended = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)
    output = F.linear(attended.transpose(1, 2).flatten(2), out_proj_weight, out_proj_bias).transpose(0, 1)
    if weight is not None and average_attn_weights:
        weight = weight.mean(1)
    return output, weight


def _projections(
    inputs: tuple[Tensor, Tensor, Tensor], weights: Tensor | tuple | None, bias: Tensor | None
) -> list[Tensor]:
    """Queries, keys and values, each (N, L, E).

    A packed weight is applied as a whole and two thirds of its output left out, which keeps it one affine block.
    """
    if isinstance(weights, Tensor):
        if inputs[0] is inputs[1] and inputs[1] is inputs[2]:
            return list(F.linear(inputs[0].transpose(0, 1), weights, bias).chunk(3, -1))
        return [F.linear(t.transpose(0, 1), weights, bias).chunk(3, -1)[i] for i, t in enumerate(inputs)]
    projected = [F.linear(t.transpose(0, 1), w) for t, w in zip(inputs, weights or (), strict=True)]
    return projected if bias is None else [p + b for p, b in zip(projected, bias.chunk(3), strict=True)]


def _mask(attention: Tensor | None, padding: Tensor | None, n: int, sources: int, like: Tensor) -> Tensor | None:
    """Both masks as one to add to the attention logits (N, H, L, S); keys put behind the masked ones are open."""
    parts = []
    if attention is not None:
        mask = _additive(attention, like)
        parts.append(mask if mask.ndim == 2 else mask.unflatten(0, (n, -1)))
    if padding is not None:
        parts.append(_additive(padding, like)[:, None, None])
    if not parts:
        return None
    total = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    return F.pad(total, (0, sources - total.shape[-1]))


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """Minus infinity where a mask of truth values is set."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, float("-inf"))
