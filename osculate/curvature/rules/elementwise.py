"""Elementwise operations, and parameters that act on activations elementwise.

Rows: slopes, layer scales, free biases, position tables, class tokens. Squares: m times the squared derivative, by
applying the operation's own backward twice; for any elementwise operation of torch, by its name.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.utils._pytree import tree_flatten, tree_unflatten

from osculate.curvature.rules._base import (
    Call,
    Local,
    Pulled,
    Use,
    dense,
    entrywise,
    rows_of,
    squares_of,
    sum_to,
    words,
)

#: Elementwise operations that torch's own tag leaves out: other names of tagged ones, or compositions of them.
UNTAGGED = words(
    """
    absolute arccos arccosh arcsin arcsinh arctan arctan2 arctanh divide fix hardswish log_sigmoid logsigmoid
    multiply negative softsign special_erf special_erfc special_exp2 special_expit special_expm1 special_log1p
    special_logit special_sinc subtract tanhshrink
    """
)
#: Elementwise operations that torch tags since version 2.12 only.
LATELY_TAGGED = words("leaky_relu")
#: Elementwise operations whose derivative is zero or one: the ordinary backward is already the squared one.
SELECTIONS = words("add clamp clamp_max clamp_min clip clone masked_fill relu threshold where")


@cache
def is_elementwise(name: str) -> bool:
    """True if operations of this name work entry by entry, with a derivative that is not only zero or one."""
    if name in SELECTIONS:
        return False
    overloads = getattr(torch.ops.aten, name, None)
    if name in UNTAGGED or not isinstance(overloads, torch._ops.OpOverloadPacket):
        return name in UNTAGGED
    tagged = any(torch.Tag.pointwise in getattr(overloads, each).tags for each in overloads.overloads())
    return tagged or name in LATELY_TAGGED


def squared_elementwise(call: Call, operation: Callable, *args: Any, **kwargs: Any) -> Any:
    """y_i = φ(a_i, b_i, …): m times (∂φ/∂a_i)² for a, and so on.

    Arguments are broadcast by views first, so that the sums over a broadcast axis come after the square.
    """
    leaves, spec = tree_flatten((args, kwargs))
    shape = torch.broadcast_shapes(*(leaf.shape for leaf in leaves if isinstance(leaf, Tensor)))
    leaves = [
        leaf.expand(shape) if isinstance(leaf, Tensor) and leaf.requires_grad and leaf.shape != shape else leaf
        for leaf in leaves
    ]
    args, kwargs = tree_unflatten(leaves, spec)
    y = operation(*args, **kwargs)
    if not isinstance(y, Tensor) or y.shape != shape:
        return NotImplemented  # the name has another meaning for these arguments, like max
    found = [get_gradient_edge(leaf) for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    edges = {edge[:2]: edge for edge in found}
    if y.grad_fn is None or get_gradient_edge(y)[:2] in edges:
        return y
    if {edge for edge in y.grad_fn.next_functions if edge[0] is not None} == set(edges):
        _square_node(call, y.grad_fn)
        return y
    if len(edges) > 1:
        return NotImplemented
    (argument,), edge = edges.values(), get_gradient_edge(y)  # several nodes: a first pass through all of them
    y = y.clone()  # the hook must come before the nodes that it passes through itself
    call.hooks.append(y.register_hook(lambda m: torch.autograd.grad(edge, argument, m, retain_graph=True)[0]))
    return y


def _square_node(call: Call, node: Any) -> None:
    """Square the derivative of one node: pull back through it a second time, separately for each argument."""
    places: dict[Any, list[int]] = {}
    for i, edge in enumerate(node.next_functions):
        places.setdefault(edge, []).append(i)

    def pull(gradients: Sequence[Tensor | None], _: Sequence[Tensor]) -> Pulled:
        result: list[Tensor | None] = [None] * len(gradients)
        for where in places.values():
            if (once := _total(gradients, where)) is not None:
                result[where[0]] = _total(node(once), where)
        return tuple(result)

    call.after(node, pull)


def _total(gradients: Any, places: list[int]) -> Tensor | None:
    """The sum over the positions of one argument (two in x · x)."""
    found = gradients if isinstance(gradients, tuple | list) else (gradients,)
    terms = [found[i] for i in places if found[i] is not None]
    return sum(terms[1:], terms[0]) if terms else None


class Slope(Local):
    """y = max(0, x) + w min(0, x)."""

    def forward(self, x: Tensor, w: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        return torch.where(x > 0, x, w * x), (x, w)

    def pull(self, needed: Sequence[bool], m: Tensor, x: Tensor, w: Tensor) -> Pulled:
        m_x = torch.where(x > 0, m, m * w.square()) if needed[0] else None
        return m_x, (m * x.clamp(max=0).square()).sum_to_size(w.shape) if needed[1] else None

    def gradient(self, needed: Sequence[bool], g: Tensor, x: Tensor, w: Tensor) -> Pulled:
        g_x = torch.where(x > 0, g, g * w) if needed[0] else None
        return g_x, (g * x.clamp(max=0)).sum_to_size(w.shape) if needed[1] else None


@squares_of(torch.prelu)
def prelu_squares(call: Call, input: Tensor, weight: Tensor) -> Tensor:
    """One slope for all, or for each channel."""
    shape = (1, -1, *(1,) * (input.ndim - 2)) if input.ndim > 1 else (-1,)
    return Slope()(input, weight.reshape(shape))


@squares_of(F.glu)
def glu_squares(call: Call, input: Tensor, dim: int = -1) -> Tensor:
    """One half times the sigmoid of the other."""
    a, b = input.chunk(2, dim)
    return squared_elementwise(call, torch.mul, a, squared_elementwise(call, torch.sigmoid, b))


@rows_of(torch.prelu)
def prelu(call: Call, input: Tensor, weight: Tensor) -> Use | None:
    """y = max(0, x) + w min(0, x), one slope for all or for each channel."""
    if input.ndim < 2:
        return None
    shape = (weight.numel(), *(1,) * (input.ndim - 2))
    return entrywise(call, (weight, input.clamp(max=0), shape))


@rows_of(torch.mul, Tensor.mul)
def multiply(call: Call, input: Tensor, other: Tensor) -> Use | None:
    """y = w ∘ x with w broadcast over the batch."""
    parameter, factor = (input, other) if call.source(input) is not None else (other, input)
    return _broadcast(call, parameter, factor)


@rows_of(torch.add, Tensor.add, Tensor.add_)
def add(call: Call, input: Tensor, other: Tensor, *, alpha: int | float = 1) -> Use | None:
    """y = x + w with w broadcast over the batch."""
    parameter, rest = (input, other) if call.source(input) is not None else (other, input)
    if alpha != 1 or not isinstance(rest, Tensor) or not rest.ndim:
        return None
    return _broadcast(call, parameter, torch.ones_like(call.output))


@rows_of(torch.cat, torch.concat, torch.concatenate)
def cat(call: Call, tensors: Sequence[Tensor], dim: int = 0) -> Use | None:
    """Parameters concatenated with activations, shared by all data: class tokens, learned keys and values."""
    axis = dim % call.output.ndim
    sources, places, start = [], [], 0
    for tensor in tensors:
        stop = start + tensor.shape[axis]
        if (source := call.source(tensor)) is not None:
            shared = source.for_each_datum(tensor)
            if axis == 0 or shared is None or len(tensor) != len(call.output):
                return None
            sources.append(shared)
            places.append((start, stop))
        start = stop

    def rows(columns: Tensor) -> list[Tensor]:
        return [columns.narrow(axis + 1, start, stop - start).flatten(2) for start, stop in places]

    return dense(sources, rows)


def _broadcast(call: Call, parameter: Tensor, factor: object) -> Use | None:
    source, axes = call.source(parameter), call.output.ndim
    if source is None or axes < 1 or not isinstance(factor, Tensor) or factor.ndim < axes:
        return None
    if call.source(factor) is not None or parameter.ndim > axes:
        return None
    shared = source if parameter.ndim < axes else source.for_each_datum(parameter)
    shape = tuple(parameter.shape if parameter.ndim < axes else parameter.shape[1:])
    if shared is None:
        return None
    return dense([shared], lambda columns: [sum_to(columns * call.constant(factor), shape)])
