"""Derivatives that several threads can take at the same time."""

from collections.abc import Callable
from threading import RLock
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

#: torch counts the nesting of its forward derivatives for the whole process.
_FORWARD_MODE = RLock()


class UnfusedAttention(TorchFunctionMode):
    """Compute attention by a product, a softmax and a product: the fused kernels have no second derivative.

    ``torch.nn.attention.sdpa_kernel`` makes the same choice for the whole process, other threads included; a mode
    belongs to its thread.

    >>> q = torch.randn(2, 3, 4, requires_grad=True)
    >>> with UnfusedAttention():
    ...     f = F.scaled_dot_product_attention(q, q, q).sum()
    >>> (g,) = torch.autograd.grad(f, q, create_graph=True)
    >>> torch.autograd.grad(g.square().sum(), q)[0].shape
    torch.Size([2, 3, 4])
    """

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run the operation, attention by its unfused kernel."""
        return _UNFUSED.get(func, func)(*args, **(kwargs or {}))


def _unfused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    return torch._scaled_dot_product_attention_math(query, key, value, attn_mask, dropout_p, is_causal, **options)[0]


_UNFUSED: dict[Callable, Callable] = {
    F.scaled_dot_product_attention: _unfused,
    # a mode does not see what a function of torch calls: the same function, which finds the other attention
    F.multi_head_attention_forward: FunctionType(
        F.multi_head_attention_forward.__code__,
        vars(F) | {"scaled_dot_product_attention": _unfused},
        argdefs=F.multi_head_attention_forward.__defaults__,
    ),
}


def forward_derivative(function: Callable, point: Any, tangent: Any) -> Any:
    """The derivative of a function at a point along a tangent (``torch.func.jvp``), one thread at a time."""
    with _FORWARD_MODE:
        return torch.func.jvp(function, (point,), (tangent,))[1]
