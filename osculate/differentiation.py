"""Derivatives that several threads can take at the same time."""

from collections.abc import Callable, Sequence
from threading import RLock
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

#: torch counts the nesting of its forward derivatives, and has one switch for cuDNN, for the whole process.
_FORWARD_MODE, _CUDNN = RLock(), RLock()


class Unfused(TorchFunctionMode):
    """Compute attention by a product, a softmax and a product, and recurrent layers cell by cell.

    The fused kernels (of cuDNN on a GPU) have no second derivative. ``torch.nn.attention.sdpa_kernel`` makes the same
    choice for the whole process, other threads included; a mode belongs to its thread.

    >>> q = torch.randn(2, 3, 4, requires_grad=True)
    >>> with Unfused():
    ...     f = F.scaled_dot_product_attention(q, q, q).sum()
    >>> (g,) = torch.autograd.grad(f, q, create_graph=True)
    >>> torch.autograd.grad(g.square().sum(), q)[0].shape
    torch.Size([2, 3, 4])
    """

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run the operation, by its unfused kernel if it is in the table."""
        return _run(self, _UNFUSED, func, args, kwargs or {})


def _unfused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    if attn_mask is not None and attn_mask.dtype == torch.bool:  # which this kernel would add as zeros and ones
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -torch.inf)
    return torch._scaled_dot_product_attention_math(query, key, value, attn_mask, dropout_p, is_causal, **options)[0]


def _by_cells(layer: Callable) -> Callable:
    """A recurrent layer without cuDNN; other threads that run one meanwhile go without it as well."""

    def run(*args: Any, **kwargs: Any) -> Any:
        if not args[0].is_cuda:
            return layer(*args, **kwargs)
        with _CUDNN, torch.backends.cudnn.flags(enabled=False):
            return layer(*args, **kwargs)

    return run


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    axes = tuple(range(-len(normalized_shape), 0))
    return _scaled(_standardised(input, axes, eps), weight, bias)


def _rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    axes = tuple(range(-len(normalized_shape), 0))
    square = input.square().mean(axes, keepdim=True)
    return _scaled(input * (square + (torch.finfo(input.dtype).eps if eps is None else eps)).rsqrt(), weight, None)


def _group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    grouped = _standardised(input.reshape(len(input), num_groups, -1), (-1,), eps)
    return _scaled(grouped.reshape(input.shape), *_by_channel(input, weight, bias))


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if training or running_mean is None or running_var is None:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    inverse = (running_var + eps).rsqrt()
    standard = _scaled(input, *_by_channel(input, inverse, -running_mean * inverse))
    return _scaled(standard, *_by_channel(input, weight, bias))


def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not use_input_stats:
        return _batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return _scaled(_standardised(input, tuple(range(2, input.ndim)), eps), *_by_channel(input, weight, bias))


def _standardised(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    centred = x - x.mean(axes, keepdim=True)
    return centred * (centred.square().mean(axes, keepdim=True) + eps).rsqrt()


def _by_channel(input: Tensor, *tensors: Tensor | None) -> list[Tensor | None]:
    return [None if t is None else t.reshape(-1, *(1,) * (input.ndim - 2)) for t in tensors]


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    plain = input.ndim == 2 and offsets is None and max_norm is None and per_sample_weights is None
    if not plain or padding_idx is not None or mode not in ("mean", "sum"):
        options = (max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset)
        return F.embedding_bag(input, weight, offsets, *options, padding_idx)
    rows = F.embedding(input, weight)
    return rows.mean(1) if mode == "mean" else rows.sum(1)


_UNFUSED: dict[Callable, Callable] = {
    F.scaled_dot_product_attention: _unfused,
    F.embedding_bag: _embedding_bag,
    # a mode does not see what a function of torch calls: the same function, which finds the other attention
    F.multi_head_attention_forward: FunctionType(
        F.multi_head_attention_forward.__code__,
        vars(F) | {"scaled_dot_product_attention": _unfused},
        argdefs=F.multi_head_attention_forward.__defaults__,
    ),
    **{layer: _by_cells(layer) for layer in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)},
}


_ELEMENTARY: dict[Callable, Callable] = _UNFUSED | {
    F.layer_norm: _layer_norm,
    F.rms_norm: _rms_norm,
    F.group_norm: _group_norm,
    F.batch_norm: _batch_norm,
    F.instance_norm: _instance_norm,
}


class Elementary(TorchFunctionMode):
    """Compute attention, recurrent layers and normalisations by elementary operations.

    The second derivatives of torch's fused normalisations are right, but take the saved statistics for constants: the
    third ones, such as the derivative of a Jacobian-vector product by reverse over reverse, are silently wrong.
    """

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run the operation, from elementary ones if it is in the table."""
        return _run(self, _ELEMENTARY, func, args, kwargs or {})


#: The gradient, without a question to the modes, so that it can run within one.
_GRADIENT = FunctionType(
    torch.autograd.grad.__code__,
    vars(torch.autograd) | {"has_torch_function": lambda _: False},
    argdefs=torch.autograd.grad.__defaults__,
)
_GRADIENT.__kwdefaults__ = torch.autograd.grad.__kwdefaults__


def _run(mode: TorchFunctionMode, table: dict[Callable, Callable], func: Callable, args: tuple, kwargs: dict) -> Any:
    """The operation of a table within a mode; a gradient in the mode, since it may recompute activations."""
    if func is torch.autograd.grad:
        with mode:
            return _GRADIENT(*args, **kwargs)
    return table.get(func, func)(*args, **kwargs)


def forward_derivative(function: Callable, point: Any, tangent: Any) -> Any:
    """The derivative of a function at a point along a tangent (``torch.func.jvp``), one thread at a time."""
    with _FORWARD_MODE:
        return torch.func.jvp(function, (point,), (tangent,))[1]
