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
    grouped = _standardised(input.reshape(input.shape[0], num_groups, -1), (-1,), eps)
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


class _Folded(torch.autograd.Function):
    """A function of columns (N, …) and of constants of each datum; a batched derivative folds its columns into N."""

    @staticmethod
    def forward(function: Callable[..., Tensor], g: Tensor, *constants: Tensor) -> Tensor:
        return function(g, *constants)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        """Keep nothing: it has no derivative."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple, function: Callable, g: Tensor, *constants: Tensor) -> tuple[Tensor, int]:
        size, g = info.batch_size, g.movedim(in_dims[1], 0)
        repeated = [each.expand(size, *each.shape).flatten(0, 1) for each in constants]
        folded = function(g.flatten(0, 1), *repeated)
        return folded.reshape(size, g.shape[1], *folded.shape[1:]), 0


class _Elementwise(torch.autograd.Function):
    """A function of each entry, whose derivative is computed with it."""

    @staticmethod
    def forward(ctx: Any, function: Callable[[Tensor], Tensor], input: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = input.detach().requires_grad_()
            output = function(leaf)
            (slope,) = torch.autograd.grad(output, leaf, torch.ones_like(output))
        ctx.save_for_backward(slope)
        return output.detach()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[None, Tensor]:
        return None, g * ctx.saved_tensors[0]


def _elementwise(function: Callable) -> Callable:
    def run(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return _Elementwise.apply(lambda x: function(x, *args, **kwargs), input)

    return run


class _Largest(torch.autograd.Function):
    """Entries along the last axis, by their indices."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, indices: Tensor) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.size = input.shape[-1]
        return input.gather(-1, indices)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        def scattered(g: Tensor, indices: Tensor) -> Tensor:
            return g.new_zeros(*g.shape[:-1], ctx.size).scatter_add(-1, indices, g)

        return _Folded.apply(scattered, g, *ctx.saved_tensors), None


class _Convolution(torch.autograd.Function):
    """A convolution whose derivative by its input is a convolution, too."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, settings: tuple) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.settings, ctx.sizes = settings, input.shape[2:]
        return torch.convolution(input, weight, bias, *settings)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        (weight,), (stride, padding, dilation, transposed, _, groups) = ctx.saved_tensors, ctx.settings
        extra = [0] * len(stride)
        if not transposed:
            sides = zip(ctx.sizes, g.shape[2:], stride, padding, dilation, weight.shape[2:], strict=True)
            extra = [size - ((o - 1) * s - 2 * p + d * (k - 1) + 1) for size, o, s, p, d, k in sides]
        back = (stride, padding, dilation, not transposed, extra, groups)
        return _Folded.apply(lambda g: torch.convolution(g, weight, None, *back), g), None, None, None


def _convolution(transposed: bool) -> Callable:
    def run(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sequence[int] | int = 1,
        padding: Sequence[int] | int | str = 0,
        *rest: Any,
    ) -> Tensor:
        dims = weight.ndim - 2
        output_padding, groups, dilation = (*rest, 0, 1, 1)[:3] if transposed else (0, *(*rest, 1, 1)[1::-1])
        if isinstance(padding, str):
            total = [
                d * (k - 1) * (padding == "same") for d, k in zip(_each(dilation, dims), weight.shape[2:], strict=True)
            ]
            padding = [t // 2 for t in total]
            if any(t % 2 for t in total):  # more on one side
                input = _pad(input, [p for t in reversed(total) for p in (0, t % 2)])
        sizes = [_each(size, dims) for size in (stride, padding, dilation)]
        return _Convolution.apply(input, weight, bias, (*sizes, transposed, _each(output_padding, dims), groups))

    return run


def _each(size: Sequence[int] | int, dims: int) -> list[int]:
    sizes = [size] if isinstance(size, int) else list(size)
    return sizes * dims if len(sizes) == 1 else sizes


def _pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Constants on both sides of the last axes, by concatenation."""
    if mode != "constant" or min(pad) < 0:
        return F.pad(input, pad, mode, value)
    for axis, sizes in enumerate(zip(pad[::2], pad[1::2], strict=True), start=1):
        shapes = [(*input.shape[:-axis], size, *input.shape[input.ndim - axis + 1 :]) for size in sizes]
        before, after = (input.new_full(shape, value or 0.0) for shape in shapes)
        input = torch.cat([before, input, after], -axis)
    return input


def _max_pool(pool: Callable, dims: int) -> Callable:
    """The largest entries of windows, gathered by their indices."""

    def run(input: Tensor, *args: Any, return_indices: bool = False, **kwargs: Any) -> Any:
        if return_indices or input.ndim != dims + 2:
            return pool(input, *args, return_indices=return_indices, **kwargs)
        with torch.no_grad():
            indices = pool(input, *args, return_indices=True, **kwargs)[1]
        return _Largest.apply(input.flatten(2), indices.flatten(2)).reshape(indices.shape)

    return run


def _avg_pool(
    input: Tensor,
    kernel_size: Sequence[int] | int,
    stride: Sequence[int] | int | None = None,
    padding: Sequence[int] | int = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of windows as a convolution of each channel."""
    kernel, padded = _each(kernel_size, 2), _each(padding, 2)
    if input.ndim != 4 or ceil_mode or (any(padded) and not count_include_pad):
        options = (ceil_mode, count_include_pad, divisor_override)
        return F.avg_pool2d(input, kernel, _each(stride or kernel, 2), padded, *options)
    weight = input.new_full((1, 1, *kernel), 1 / (divisor_override or kernel[0] * kernel[1]))
    channels = input.reshape(-1, 1, *input.shape[2:])
    settings = (_each(stride or kernel, 2), padded, [1, 1], False, [0, 0], 1)
    pooled = _Convolution.apply(channels, weight, None, settings)
    return pooled.reshape(*input.shape[:2], *pooled.shape[2:])


def _adaptive_avg_pool(input: Tensor, output_size: Sequence[int | None] | int | None) -> Tensor:
    """The means of even parts of both axes, as products with a matrix for each."""
    wanted = output_size if isinstance(output_size, tuple | list) else (output_size, output_size)
    rows, columns = (
        _means(size, size if out is None else out, input) for size, out in zip(input.shape[-2:], wanted, strict=True)
    )
    return rows @ input @ columns.mT


def _means(size: int, parts: int, like: Tensor) -> Tensor:
    every = torch.arange(size, device=like.device)
    ends = [(i * size // parts, -((i + 1) * size // -parts)) for i in range(parts)]
    return torch.stack([((every >= start) & (every < end)).to(like) / (end - start) for start, end in ends])


_CONVOLVED: tuple[Callable, ...] = (torch.conv1d, torch.conv2d, torch.conv3d)
_TRANSPOSED: tuple[Callable, ...] = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)
_TRACEABLE: dict[Callable, Callable] = {
    **_ELEMENTARY,
    **dict.fromkeys(_CONVOLVED, _convolution(False)),
    **dict.fromkeys(_TRANSPOSED, _convolution(True)),
    F.max_pool2d: _max_pool(F.max_pool2d, 2),
    torch.max_pool2d: _max_pool(F.max_pool2d, 2),
    F.gelu: _elementwise(F.gelu),
    F.mish: _elementwise(F.mish),
    F.pad: _pad,
    F.avg_pool2d: _avg_pool,
    F.adaptive_avg_pool2d: _adaptive_avg_pool,
}


class Traceable(TorchFunctionMode):
    """Compute convolutions, pooling, attention and normalisations by operations whose derivatives can be exported.

    The derivatives are then operations that exchange formats have (a convolution, a gather), and batched derivatives
    of them take any number of inputs in a traced graph.
    """

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run the operation, in another way if it is in the table."""
        return _run(self, _TRACEABLE, func, args, kwargs or {})


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
