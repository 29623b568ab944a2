r"""Covariances by classes of distance: what the evidence needs of a Jacobian, whatever variances and length-scales are.

The prior of a block mixes a handful of constant matrices D_δ (see :class:`~osculate.inverse.filters.FilterPrior`), and
so does every covariance made of it:

.. math:: R J \Sigma J^\top R^\top = \sum_b \sum_\delta v_b e^{-\delta/\ell_b} M_{b\delta}, \qquad
          M_{b\delta} = \sum_{f \in b} (R J_f) D_\delta (R J_f)^\top

with R any rows in image space. M is computed once; after it no Jacobian is needed.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.inverse.filters import FilterPrior
from osculate.memory import even_parts

#: Numbers in double precision that a part of a block's filters may take.
PART = 2**24


def class_grams(prior: FilterPrior, rows: Float[Tensor, "V P"]) -> Float[Tensor, "E V V"]:
    """M for every block and distance, one after the other, in double precision.

    Args:
        prior: says which weights form filters, and which of their entries are how far apart.
        rows: R J.

    Cost: 2·V²·P operations for each class of distance of a filter's block.
    """
    result = []
    for block, filters in zip(prior.blocks, prior.split(rows), strict=True):
        total = torch.zeros(len(block.distances), len(rows), len(rows), dtype=torch.double, device=rows.device)
        most = max(1, PART // (len(rows) * block.positions))
        for part in even_parts(filters.shape[1], most):
            some = filters[:, part].double()
            for number, pairs in enumerate(block.pairs.to(some)):
                total[number] += (some @ pairs).flatten(1) @ some.flatten(1).T
        result.append(total)
    return torch.cat(result)


def class_diagonals(prior: FilterPrior, parts: Iterable[Float[Tensor, "_ P"]]) -> list[Float[Tensor, "_ _"]]:
    """The diagonals of M, one tensor (E, V) a block, from a few rows at a time; no matrix is formed."""
    found: list[list[Tensor]] = [[] for _ in prior.blocks]
    for rows in parts:
        for mine, block, filters in zip(found, prior.blocks, prior.split(rows), strict=True):
            some = filters.double()
            mine.append(torch.stack([((some @ pairs) * some).sum((1, 2)) for pairs in block.pairs.to(some)]))
    return [torch.cat(mine, 1) for mine in found]
