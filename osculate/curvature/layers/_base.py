"""What a layer rule is, and the two shapes that all of them have: affine maps and elementwise factors.

A rule is written for a torch *operation* (``F.linear``, ``torch.conv2d``), not for a module, so that it serves
modules and functional calls alike. It receives the operation's own arguments, and returns a :class:`Use` that says
how the block of parameters acted, or None where it does not apply; the parameter then falls back to plain
vector-Jacobian products.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from osculate.curvature.forms import Dense, Form, Outer

#: The rules, by operation.
RULES: dict[Callable, Callable] = {}


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
    """What a rule knows besides the arguments: which tensors are tracked parameters, and the output."""

    def __init__(self, names: Mapping[int, str], output: Tensor) -> None:
        self._names = names
        self.output = output

    def name(self, tensor: object) -> str | None:
        """The name of a tracked parameter, None for anything else."""
        return self._names.get(id(tensor)) if isinstance(tensor, Tensor) else None


def rule(*operations: Callable) -> Callable[[Callable], Callable]:
    """Register a function as the rule of these operations."""

    def register(function: Callable) -> Callable:
        RULES.update(dict.fromkeys(operations, function))
        return function

    return register


def affine(
    call: Call,
    weight: Tensor,
    bias: Tensor | None,
    inputs: Callable[[bool], Tensor],
    outputs: Callable[[Tensor], Tensor],
    matrix: Callable[[Tensor], Tensor],
) -> Use:
    """A weight and its bias as one block: y_r = [W | b] [a_r; 1].

    Args:
        call: the call.
        weight: the weight as the operation received it.
        bias: the bias, or None.
        inputs: gives a (N, R, G, I), with a last feature of ones where it is called with True.
        outputs: takes pulled-back columns (V, N, *output) to (V, N, R, G, O).
        matrix: takes the weight, or its positions, to (G, O, I).
    """
    w, b = call.name(weight), call.name(bias)
    names = tuple(name for name in (w, b) if name is not None)

    def form(columns: Tensor) -> Form:
        g = outputs(columns)
        if w is None:
            return Dense(g.sum(2).flatten(2))
        return Outer(inputs(b is not None).detach(), g)

    def arrange(positions: Mapping[str, Tensor]) -> Tensor:
        if w is None:
            return positions[b].reshape(-1)  # type: ignore[index]
        entries = matrix(positions[w])
        if b is None:
            return entries
        return torch.cat([entries, positions[b].reshape(*entries.shape[:2], 1)], -1)

    return Use(names, form, arrange)


def with_ones(a: Tensor, append: bool) -> Tensor:
    """The features with a constant one behind them, for a bias."""
    return torch.cat([a, a.new_ones(*a.shape[:-1], 1)], -1) if append else a


def elementwise(call: Call, *terms: tuple[Tensor | None, Tensor | None, tuple[int, ...]]) -> Use:
    """Parameters that enter as y = … + w ∘ t: scales (t the scaled input), shifts (t = 1), slopes.

    Args:
        call: the call.
        terms: for each parameter: the tensor, its factor t (shape of the output, None for ones), and its shape
            broadcast against one output without the batch axis.
    """
    tracked = [(name, t, shape) for p, t, shape in terms if (name := call.name(p)) is not None]

    def form(columns: Tensor) -> Form:
        parts = []
        for _, t, shape in tracked:
            product = columns if t is None else columns * t.detach()
            parts.append(_sum_to(product, shape).reshape(*columns.shape[:2], -1))
        return Dense(torch.cat(parts, -1))

    def arrange(positions: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([positions[name].reshape(-1) for name, _, _ in tracked])

    return Use(tuple(name for name, _, _ in tracked), form, arrange)


def _sum_to(product: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sum (V, N, *output) over the output axes along which a parameter of this shape is broadcast."""
    missing = product.ndim - 2 - len(shape)
    axes = [2 + i for i, size in enumerate((1,) * missing + shape) if size == 1]
    return product.sum(axes) if axes else product
