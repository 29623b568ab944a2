"""Columns pulled back through the graph of one forward pass, all at once where torch can."""

import torch
from torch import Tensor


def pull(f: Tensor, inputs: list, columns: Tensor) -> list[Tensor | None]:
    """∂(columns · f)/∂inputs for all columns (V, N, *C) at once: a list of (V, *input)."""
    if not inputs:
        return []
    if len(columns) > 1:
        try:
            return list(
                torch.autograd.grad(f, inputs, columns, is_grads_batched=True, allow_unused=True, retain_graph=True)
            )
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # an operation whose backward cannot be batched: one column at a time
            pass
    each = [torch.autograd.grad(f, inputs, c, allow_unused=True, retain_graph=True) for c in columns]
    return [None if parts[0] is None else torch.stack(parts) for parts in zip(*each, strict=True)]
