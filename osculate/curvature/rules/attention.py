"""Attention and the softmax. Multi-head attention, one call in torch, is written out in linear layers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from osculate.curvature.rules._base import Call, Local, Pulled, parts_of, squares_of
from osculate.curvature.rules.linear import Product


@parts_of(F.multi_head_attention_forward)
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
    """Attention, computed with the batch axis first; the arguments have it second, (L, N, E).

    ``is_causal`` is a hint about the mask. As in torch it replaces the mask if no weights are requested and nothing is
    padded, which also masks keys beyond the given ones.
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

    A packed weight is applied as a whole and two thirds of its output are dropped, which keeps it one affine block.
    """
    if isinstance(weights, Tensor):
        if inputs[0] is inputs[1] and inputs[1] is inputs[2]:
            return list(F.linear(inputs[0].transpose(0, 1), weights, bias).chunk(3, -1))
        return [F.linear(t.transpose(0, 1), weights, bias).chunk(3, -1)[i] for i, t in enumerate(inputs)]
    projected = [F.linear(t.transpose(0, 1), w) for t, w in zip(inputs, weights or (), strict=True)]
    return projected if bias is None else [p + b for p, b in zip(projected, bias.chunk(3), strict=True)]


def _mask(attention: Tensor | None, padding: Tensor | None, n: int, sources: int, like: Tensor) -> Tensor | None:
    """Both masks as one to add to the attention logits (N, H, L, S); appended keys are not masked."""
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
    """Minus infinity where a boolean mask is set."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, float("-inf"))


@dataclass(frozen=True)
class Softmax(Local):
    """J = diag(p) − p pᵀ."""

    dim: int

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        p = x.softmax(self.dim)
        return p, (p,)

    def pull(self, needed: Sequence[bool], m: Tensor, p: Tensor) -> Pulled:
        p2 = p.square()
        return (p2 * ((p2 * m).sum(self.dim, keepdim=True) + (1 - 2 * p) * m),)

    def gradient(self, needed: Sequence[bool], g: Tensor, p: Tensor) -> Pulled:
        return (p * (g - (p * g).sum(self.dim, keepdim=True)),)


@dataclass(frozen=True)
class LogSoftmax(Local):
    """J = I − 1 pᵀ."""

    dim: int

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        y = x.log_softmax(self.dim)
        return y, (y,)

    def pull(self, needed: Sequence[bool], m: Tensor, y: Tensor) -> Pulled:
        p = y.exp()
        return (p.square() * m.sum(self.dim, keepdim=True) + (1 - 2 * p) * m,)

    def gradient(self, needed: Sequence[bool], g: Tensor, y: Tensor) -> Pulled:
        return (g - y.exp() * g.sum(self.dim, keepdim=True),)


@squares_of(torch.softmax, Tensor.softmax, torch.special.softmax)
def softmax(call: Call, input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Softmax along an axis."""
    return Softmax(dim)(input if dtype is None else input.to(dtype))


@squares_of(torch.log_softmax, Tensor.log_softmax, torch.special.log_softmax)
def log_softmax(call: Call, input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Logarithm of the softmax along an axis."""
    return LogSoftmax(dim)(input if dtype is None else input.to(dtype))


@squares_of(F.scaled_dot_product_attention)
def attention(
    call: Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: int | float = 0.0,
    is_causal: bool = False,
    scale: int | float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(q kᵀ / √d + mask) v: a product, a softmax, a product."""
    if dropout_p > 0:
        return NotImplemented
    if enable_gqa:
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    logits = Product(query.shape[-1] ** -0.5 if scale is None else scale)(query, key.mT)
    if is_causal:
        attn_mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
    if attn_mask is None:
        return Product()(Softmax(-1)(logits), value)
    if attn_mask.dtype != torch.bool:
        logits, attn_mask = logits + attn_mask, attn_mask > float("-inf")
    closed = ~attn_mask.any(-1, keepdim=True)  # a query for which all keys are masked gets zeros
    weights = Softmax(-1)(logits.masked_fill(~attn_mask, float("-inf")).masked_fill(closed, 0.0))
    return Product()(weights.masked_fill(closed, 0.0), value)
