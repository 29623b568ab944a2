"""What a layer rule is, and the two shapes that all of them have: affine maps and elementwise factors.

A rule is written for a torch *operation* (``F.linear``, ``torch.conv2d``), not for a module, so that it serves
modules and functional calls alike. It receives the operation's own arguments, and returns a :class:`Use` that says
how the block of parameters acted, or None where it does not apply; the parameter then falls back to plain
vector-Jacobian products.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.forms import Dense, Form, Outer
from osculate.curvature.layers.sources import Source, Sources

#: The rules, by operation.
RULES: dict[Callable, Callable] = {}

#: Operations that hide several others from view, written out in those. They take the operation's own arguments, and
#: return NotImplemented for what they do not cover.
REWRITES: dict[Callable, Callable] = {}


@dataclass(frozen=True)
class Use:
    """One use of a block of parameters in one operation.

    Attributes:
        names: the tracked parameters of the block.
        form: from the pulled-back columns (V, N, *output) to the form.
        arrange: from each parameter's positions in θ to the positions of the form's entries.
    """

    names: tuple[str, ...]
    form: Callable[[Tensor], Form]
    arrange: Callable[[Mapping[str, Tensor]], Tensor]


class Call:
    """What a rule knows besides the arguments: what is made of tracked parameters, and the output."""

    def __init__(self, sources: Sources, output: Tensor) -> None:
        self._sources = sources
        self.output = output

    def source(self, tensor: object) -> Source | None:
        """How a tensor is made of tracked parameters, None for anything else."""
        return self._sources[tensor]


def rule(*operations: Callable) -> Callable[[Callable], Callable]:
    """Register a function as the rule of these operations; arguments that it does not know mean that it gives None."""

    def register(function: Callable) -> Callable:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args: object, **kwargs: object) -> Use | None:
            try:
                signature.bind(*args, **kwargs)
            except TypeError:
                return None
            return function(*args, **kwargs)

        RULES.update(dict.fromkeys(operations, checked))
        return function

    return register


def rewrite(*operations: Callable) -> Callable[[Callable], Callable]:
    """Register a function as these operations written out."""

    def register(function: Callable) -> Callable:
        REWRITES.update(dict.fromkeys(operations, function))
        return function

    return register


def affine(
    call: Call,
    weight: Tensor,
    bias: Tensor | None,
    inputs: Callable[[bool], Tensor],
    outputs: Callable[[Tensor], Tensor],
    matrix: Callable[[Tensor], Tensor],
) -> Use | None:
    """A weight and its bias as one block: y_r = [W | b] [a_r; 1].

    Args:
        call: the call.
        weight: the weight as the operation received it.
        bias: the bias, or None.
        inputs: gives a (N, R, G, I), with a last feature of ones where it is called with True.
        outputs: takes pulled-back columns (V, N, *output) to (V, N, R, G, O).
        matrix: takes the weight, or its positions, to (G, O, I).
    """
    w, b = call.source(weight), call.source(bias)
    if w is None:
        return dense([] if b is None else [b], lambda columns: [outputs(columns).sum(2).flatten(2)])

    def outer(columns: Tensor) -> Outer:
        return Outer(lambda: inputs(b is not None).detach(), outputs(columns))

    def rows(columns: Tensor) -> list[Tensor]:
        found = outer(columns).matrices()
        entries = matrix(torch.arange(weight.numel(), device=found.device).reshape(weight.shape))
        parts = found.split([entries.shape[-1], 1], -1) if b is not None else [found]
        by_entry = torch.empty_like(parts[0].flatten(2))
        by_entry[..., entries.reshape(-1)] = parts[0].flatten(2)
        return [by_entry, *(part.flatten(2) for part in parts[1:])]

    def arrange(positions: Mapping[str, Tensor]) -> Tensor:
        places = matrix(w.arrange(positions).reshape(weight.shape))
        return places if b is None else torch.cat([places, b.arrange(positions).reshape(*places.shape[:2], 1)], -1)

    sources = [w] if b is None else [w, b]
    if all(source.whole for source in sources) and len({*w.names, *(b.names if b else ())}) == len(sources):
        return Use(tuple(name for source in sources for name in source.names), outer, arrange)
    return dense(sources, rows)


def dense(sources: Sequence[Source], rows: Callable[[Tensor], Sequence[Tensor]]) -> Use | None:
    """A use whose form has the rows themselves, given with respect to the tensors that the operation received.

    Args:
        sources: of these tensors.
        rows: takes pulled-back columns (V, N, *output) to rows (V, N, k) for each of them.
    """
    if not sources:
        return None

    def form(columns: Tensor) -> Form:
        parts = [source.rows(part) for source, part in zip(sources, rows(columns), strict=True)]
        return Dense(torch.cat(parts, -1))

    def arrange(positions: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([source.arrange(positions) for source in sources])

    return Use(tuple(dict.fromkeys(name for source in sources for name in source.names)), form, arrange)


def with_ones(a: Tensor, append: bool) -> Tensor:
    """The features with a constant one behind them, for a bias."""
    return torch.cat([a, a.new_ones(*a.shape[:-1], 1)], -1) if append else a


def elementwise(call: Call, *terms: tuple[Tensor | None, Tensor | None, tuple[int, ...]]) -> Use | None:
    """Parameters that enter as y = … + w ∘ t: scales (t the scaled input), shifts (t = 1), slopes.

    Args:
        call: the call.
        terms: for each parameter: the tensor, its factor t (shape of the output, None for ones), and its shape
            broadcast against one output without the batch axis.
    """
    tracked = [(source, t, shape) for p, t, shape in terms if (source := call.source(p)) is not None]

    def rows(columns: Tensor) -> list[Tensor]:
        return [sum_to(columns if t is None else columns * t.detach(), shape) for _, t, shape in tracked]

    return dense([source for source, _, _ in tracked], rows)


def sum_to(product: Tensor, shape: tuple[int, ...]) -> Float[Tensor, "V N k"]:
    """Sum (V, N, *output) over the output axes along which a parameter of this shape is broadcast."""
    missing = product.ndim - 2 - len(shape)
    axes = [2 + i for i, size in enumerate((1,) * missing + shape) if size == 1]
    return (product.sum(axes) if axes else product).reshape(*product.shape[:2], -1)
