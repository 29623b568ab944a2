"""Squares of an operation without a squared rule: its exact local Jacobian, by vector-Jacobian products."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from osculate.curvature.columns import pull
from osculate.curvature.rules._base import Local, Pulled

#: Floats that the rows of a local Jacobian may take at once.
NUMBERS = 2**24


class LocalJacobian(Local):
    """An operation without a squared rule: (J ∘ J)ᵀ m from the rows of its Jacobian, in chunks.

    If every datum's output depends on its own inputs alone, one vector-Jacobian product gives a row for each datum.

    Args:
        inputs: The differentiable arguments, cut from the graph of the network.
        outputs: The differentiable outputs, with the graph that leads back to these.
    """

    def __init__(self, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.by_datum = _acts_by_datum(inputs, outputs)

    @property
    def products(self) -> int:
        """The number of vector-Jacobian products."""
        return sum(y.numel() // (len(y) if self.by_datum else 1) for y in self.outputs)

    def forward(self, *_: Tensor) -> tuple[Any, tuple[()]]:
        return tuple(y.detach() for y in self.outputs), ()

    def pull(self, needed: Sequence[bool], *m: Tensor) -> Pulled:
        total = [torch.zeros_like(x) for x in self.inputs]
        step = max(1, NUMBERS // max(t.numel() for t in (*self.inputs, *self.outputs)))
        for y, m_y in zip(self.outputs, m, strict=True):
            groups = len(y) if self.by_datum else 1
            weights = m_y.reshape(groups, -1).mT
            count = len(weights)
            for start in range(0, count, step):
                stop = min(count, start + step)
                units = y.new_zeros(stop - start, 1, count)
                units[torch.arange(stop - start), 0, torch.arange(start, stop)] = 1
                rows = pull(y, self.inputs, units.expand(-1, groups, -1).reshape(-1, *y.shape))
                for t, j in zip(total, rows, strict=True):
                    if j is not None:
                        squares = j.reshape(stop - start, groups, -1).square()
                        t += torch.einsum("vn,vni->ni", weights[start:stop], squares).reshape(t.shape)
        return tuple(total)

    def gradient(self, needed: Sequence[bool], *g: Tensor) -> Pulled:
        return torch.autograd.grad(self.outputs, self.inputs, g, allow_unused=True, retain_graph=True)


def _acts_by_datum(inputs: list[Tensor], outputs: list[Tensor]) -> bool:
    """True if no datum's output depends on another's inputs.

    The indices of any two data differ in some bit: data whose bit is set must not affect those whose bit is not.
    """
    count = len(outputs[0]) if outputs[0].ndim else 0
    if count < 2 or any(t.ndim == 0 or len(t) != count for t in (*inputs, *outputs)):
        return False
    generator, indices = torch.Generator().manual_seed(0), torch.arange(count)
    for bit in range((count - 1).bit_length()):
        for set_or_not in (0, 1):
            chosen = (indices >> bit) & 1 == set_or_not
            columns = [torch.randn(y.shape, generator=generator).to(y) for y in outputs]
            for column in columns:
                column[~chosen] = 0
            reached = torch.autograd.grad(outputs, inputs, columns, allow_unused=True, retain_graph=True)
            if any(g is not None and bool(g.cpu()[~chosen].any()) for g in reached):
                return False
    return True
