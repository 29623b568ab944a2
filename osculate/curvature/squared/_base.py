"""What a rule of the squared chain rule is.

A rule is written for a torch operation. It runs the operation, and sees to it that the backward pass multiplies with
the squared local Jacobian, in one of two ways: by a hook on the operation's own node in the autograd graph, or by a
:class:`Local` operation that brings its own backward.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.utils.hooks import RemovableHandle

#: Rules by operation: called with a :class:`Call` and the operation's own arguments. NotImplemented: not covered.
RULES: dict[Callable, Callable] = {}
#: Operations written in terms of others, which are then seen one by one: called with the operation's own arguments.
REWRITES: dict[Callable, Callable] = {}

#: One m for each differentiable argument, None for the others.
Pulled: TypeAlias = tuple[Tensor | None, ...]


def words(text: str) -> frozenset[str]:
    """The names in a text."""
    return frozenset(text.split())


def rule(*operations: Callable) -> Callable[[Callable], Callable]:
    """Register a function as the rule of these operations."""
    return lambda function: _registered(RULES, operations, function)


def rewrite(*operations: Callable) -> Callable[[Callable], Callable]:
    """Register a function that writes these operations in terms of others."""
    return lambda function: _registered(REWRITES, operations, function)


def _registered(table: dict[Callable, Callable], operations: tuple[Callable, ...], function: Callable) -> Callable:
    table.update(dict.fromkeys(operations, function))
    return function


@dataclass(frozen=True)
class Call:
    """One call of an operation, and the hooks that were put into its graph.

    Attributes:
        operation: as the mode received it.
        hooks: handles of all hooks, to be removed after the backward pass.
    """

    operation: Callable
    hooks: list[RemovableHandle]

    def weigh(self, y: Tensor, weights: Tensor | float) -> Tensor:
        """Multiply m by weights before it goes through the node of y.

        For a weighted sum y = D S x, D diagonal and S of zeros and ones, (D S ∘ D S)ᵀ m is (D S)ᵀ (D m).
        """
        self.hooks.append(y.register_hook(lambda m: m * weights))
        return y

    def after(self, node: Node, pull: Callable[[Sequence[Tensor | None], Sequence[Tensor]], Pulled]) -> None:
        """Replace what a node passes on: ``pull`` gets its gradients for the inputs and for the output."""
        self.hooks.append(node.register_hook(pull))


class Local(ABC):
    """An operation with its own squared backward, and the ordinary one behind it."""

    @abstractmethod
    def forward(self, *tensors: Any) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        """The output, and what :meth:`pull` needs of inputs, output and temporaries."""

    @abstractmethod
    def pull(self, needed: Sequence[bool], m: Tensor, *saved: Any) -> Pulled:
        """(J ∘ J)ᵀ m for each tensor of :meth:`forward` that needs it."""

    @abstractmethod
    def gradient(self, needed: Sequence[bool], g: Tensor, *saved: Any) -> Pulled:
        """Jᵀ g for each of them: the ordinary chain rule."""

    def __call__(self, *tensors: Tensor | None) -> Tensor:
        """The output, as a node of the autograd graph."""
        return _Squared.apply(self, *tensors)


class _Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Local, *tensors: Tensor | None) -> Tensor:
        ctx.local, ctx.ordinary = local, False
        y, saved = local.forward(*tensors)
        ctx.save_for_backward(*saved)
        return y

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        back = ctx.local.gradient if ctx.ordinary else ctx.local.pull
        return (None, *back(ctx.needs_input_grad[1:], *cotangents, *ctx.saved_tensors))


def make_ordinary(node: Node) -> None:
    """Let a node of a :class:`Local` go back to the ordinary chain rule."""
    if hasattr(node, "ordinary"):
        node.ordinary = True
