"""The registry of rules, and the parts of which rules are made.

A rule is written for a torch *operation* (``F.linear``, ``torch.conv2d``), not for a module, so that it serves modules
and functional calls alike. It has two sides, in one file:

* **rows**: the operation's own arguments to a :class:`Use`, which says how parameters act in it; None where the rule
  does not apply. The parameters then fall back to vector-Jacobian products of the whole network.
* **squares**: runs the operation such that the backward pass multiplies with its squared local Jacobian; NotImplemented
  where the rule does not apply. The operation then falls back to vector-Jacobian products of its own.

An operation that combines several others is written out in those instead, for both sides together.
"""

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.graph import Node
from torch.utils.hooks import RemovableHandle

from osculate.curvature.forms import Dense, Form, Outer
from osculate.curvature.rules.sources import Source

#: One m for each differentiable argument, None for the others.
Pulled: TypeAlias = tuple[Tensor | None, ...]


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


@dataclass
class Rule:
    """The sides of one operation; None where it has none.

    Attributes:
        rows: Takes a :class:`Call` and the operation's arguments to a :class:`Use`, or None.
        squares: Takes a :class:`Call` and the operation's arguments to its output, or NotImplemented.
        parts: Takes the operation's arguments to its output, computed by other operations, or NotImplemented.
    """

    rows: Callable | None = None
    squares: Callable | None = None
    parts: Callable | None = None


#: The rules, by operation.
RULES: dict[Callable, Rule] = {}


def rows_of(*operations: Callable) -> Callable[[Callable], Callable]:
    """Register a function as the rows of these operations; it returns None for arguments that it does not cover."""
    return lambda function: _register("rows", operations, function, None)


def squares_of(*operations: Callable) -> Callable[[Callable], Callable]:
    """Register a function as the squares of these operations; NotImplemented for arguments that it does not cover."""
    return lambda function: _register("squares", operations, function, NotImplemented)


def parts_of(*operations: Callable) -> Callable[[Callable], Callable]:
    """Register a function as these operations written in terms of others, which then have rules of their own."""
    return lambda function: _register("parts", operations, function, NotImplemented)


def _register(side: str, operations: Sequence[Callable], function: Callable, unknown: object) -> Callable:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*args: object, **kwargs: object) -> object:
        try:
            return function(*args, **kwargs)
        except TypeError:
            try:
                signature.bind(*args, **kwargs)
            except TypeError:
                return unknown
            raise

    for operation in operations:
        setattr(RULES.setdefault(operation, Rule()), side, checked)
    return function


@dataclass(frozen=True)
class Call:
    """One call of an operation, the first argument of its rule.

    Attributes:
        operation: The torch function that was called.
        output: The output, for rows; None for squares, which compute it. A function may serve both sides.
        sources: The tensors made of tracked parameters, by their ids, for rows.
        graph: True if what rows are made of keeps its graph.
        hooks: Handles of the hooks that squares put into the graph, to be removed after the backward pass.
    """

    operation: Callable
    output: Any = None
    sources: Mapping[int, Source] = field(default_factory=dict)
    graph: bool = False
    hooks: list[RemovableHandle] = field(default_factory=list)

    def source(self, tensor: object) -> Source | None:
        """The parameters of which a tensor is made; None for any other tensor."""
        return self.sources.get(id(tensor))

    def constant(self, tensor: Tensor) -> Tensor:
        """A tensor that rows are made of, without its graph unless derivatives by the inputs are asked for."""
        return tensor if self.graph else tensor.detach()

    def weigh(self, y: Tensor, weights: Tensor | float) -> Tensor:
        """Multiply m by weights before it passes through the node of y.

        For a weighted sum y = D S x, D diagonal and S of zeros and ones, (D S ∘ D S)ᵀ m is (D S)ᵀ (D m).
        """
        self.hooks.append(y.register_hook(lambda m: m * weights))
        return y

    def after(self, node: Node, pull: Callable[[Sequence[Tensor | None], Sequence[Tensor]], Pulled]) -> None:
        """Replace the gradients that a node passes on by ``pull`` of its gradients for inputs and output."""
        self.hooks.append(node.register_hook(pull))


@dataclass(frozen=True)
class Use:
    """One use of a block of parameters in one operation.

    Attributes:
        names: The tracked parameters of the block.
        form: A function from the pulled-back columns (V, N, *output) to the form.
        arrange: A function from each parameter's positions in θ to the positions of the form's entries.
    """

    names: tuple[str, ...]
    form: Callable[[Tensor], Form]
    arrange: Callable[[Mapping[str, Tensor]], Tensor]


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
        call: The call.
        weight: The weight as the operation received it.
        bias: The bias, or None.
        inputs: A function that gives a (N, R, G, I), with a last feature of ones where it is called with True.
        outputs: A function from pulled-back columns (V, N, *output) to (V, N, R, G, O).
        matrix: A function from the weight, or its positions, to (G, O, I).
    """
    w, b = call.source(weight), call.source(bias)
    if w is None:
        return dense([] if b is None else [b], lambda columns: [outputs(columns).sum(2).flatten(2)])

    def outer(columns: Tensor) -> Outer:
        return Outer(lambda: call.constant(inputs(b is not None)), outputs(columns))

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
        sources: The sources of the tensors.
        rows: A function from pulled-back columns (V, N, *output) to rows (V, N, k), one for each source.
    """
    if not sources:
        return None

    def form(columns: Tensor) -> Form:
        parts = [source.rows(part) for source, part in zip(sources, rows(columns), strict=True)]
        return Dense(torch.cat(parts, -1))

    def arrange(positions: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([source.arrange(positions) for source in sources])

    return Use(tuple(dict.fromkeys(name for source in sources for name in source.names)), form, arrange)


def entrywise(call: Call, *terms: tuple[Tensor | None, Tensor | None, tuple[int, ...]]) -> Use | None:
    """Parameters that enter as y = … + w ∘ t: scales (t the scaled input), shifts (t = 1), slopes.

    Args:
        call: The call.
        terms: A tuple for each parameter: the tensor, its factor t (shape of the output, None for ones), and its shape
            broadcast against one output without the batch axis.
    """
    tracked = [(source, t, shape) for p, t, shape in terms if (source := call.source(p)) is not None]

    def rows(columns: Tensor) -> list[Tensor]:
        return [sum_to(columns if t is None else columns * call.constant(t), shape) for _, t, shape in tracked]

    return dense([source for source, _, _ in tracked], rows)


def sum_to(product: Tensor, shape: tuple[int, ...]) -> Float[Tensor, "V N k"]:
    """Sum (V, N, *output) over the output axes along which a parameter of this shape is broadcast."""
    missing = product.ndim - 2 - len(shape)
    axes = [2 + i for i, size in enumerate((1,) * missing + shape) if size == 1]
    return (product.sum(axes) if axes else product).reshape(*product.shape[:2], -1)


class Local(ABC):
    """An operation with both a squared and the ordinary backward."""

    @abstractmethod
    def forward(self, *tensors: Any) -> tuple[Any, tuple[Tensor | None, ...]]:
        """The output, and what :meth:`pull` needs of inputs, output and temporaries."""

    @abstractmethod
    def pull(self, needed: Sequence[bool], m: Tensor, *saved: Any) -> Pulled:
        """(J ∘ J)ᵀ m for each tensor of :meth:`forward` that needs it."""

    @abstractmethod
    def gradient(self, needed: Sequence[bool], g: Tensor, *saved: Any) -> Pulled:
        """Jᵀ g for each of them: the ordinary chain rule."""

    def __call__(self, *tensors: Tensor | None) -> Any:
        """The output, as a node of the autograd graph."""
        return _Squared.apply(self, *tensors)


class Bilinear(Local):
    """An operation that is linear in each of two tensors: its ordinary backward, with the other one squared."""

    def pull(self, needed: Sequence[bool], m: Tensor, a: Tensor, b: Tensor | None, *rest: Any) -> Pulled:
        """(J ∘ J)ᵀ m for each tensor, whose coefficients are entries of the other."""
        return self.gradient(
            needed, m, a.square() if needed[1] else a, b.square() if needed[0] and b is not None else b, *rest
        )


class _Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Local, *tensors: Tensor | None) -> Any:
        ctx.local, ctx.ordinary = local, False
        y, saved = local.forward(*tensors)
        ctx.save_for_backward(*saved)
        return y

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        back = ctx.local.gradient if ctx.ordinary else ctx.local.pull
        return (None, *back(ctx.needs_input_grad[1:], *cotangents, *ctx.saved_tensors))


def make_ordinary(node: Node) -> None:
    """Return a node of a :class:`Local` to the ordinary chain rule."""
    if hasattr(node, "ordinary"):
        node.ordinary = True


def refusal(operation: str, reason: str) -> NotImplementedError:
    """The error for an operation whose squared local Jacobian is not available."""
    return NotImplementedError(
        f"the squared chain rule cannot take {operation}: it has no rule for these arguments, and {reason}, so that "
        "vector-Jacobian products cannot replace one. Use structure='diag' (exact) or 'kron', or write the operation "
        "in terms of others."
    )
