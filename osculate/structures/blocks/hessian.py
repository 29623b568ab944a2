"""The full Hessian in dense and diagonal blocks: as a matrix, or as an estimate of its diagonal."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from osculate.curvature.columns import Hessian
from osculate.curvature.observation import Observation
from osculate.curvature.products import hessian_product
from osculate.structures.blocks._base import Block
from osculate.structures.blocks.dense import DenseBlock
from osculate.structures.blocks.diagonal import DiagonalBlock


def add_hessian(blocks: Sequence[Block], observation: Observation) -> Tensor:
    """Add the Hessian of one batch to dense or diagonal blocks, and give the outputs f.

    Cost: one Hessian-vector product for each parameter of a dense block, ``Hessian.samples`` for all diagonal ones.
    """
    o, kind = observation, observation.kind
    assert isinstance(kind, Hessian)
    with torch.no_grad():
        f = o.network(o.x).to(o.network.state_dtype)
    o.check(f, o.y)
    product = partial(hessian_product, o.network, o.likelihood, o.x, o.y, memory=o.memory)
    diagonals = [block for block in blocks if isinstance(block, DiagonalBlock)]
    if diagonals:
        generator = torch.Generator().manual_seed(kind.seed + o.number)
        signs = torch.randint(2, (kind.samples, o.network.space.size), generator=generator).to(f) * 2 - 1
        estimate = (signs * product(signs)).mean(0)
        for diagonal in diagonals:
            diagonal.values.add_(estimate[diagonal.positions])
    for block in blocks:
        if isinstance(block, DenseBlock):
            _add_matrix(block, product, f.new_zeros(1, o.network.space.size))
    return f


def _add_matrix(block: DenseBlock, product: partial, zero: Tensor) -> None:
    """Row by row, as many units at a time as the matrix itself takes."""
    size, step = len(block.positions), max(1, len(block.positions) ** 2 // zero.shape[1])
    for start in range(0, size, step):
        part = block.positions[start : start + step]
        units = zero.repeat(len(part), 1)
        units[torch.arange(len(part)), part] = 1
        rows = product(units)[:, block.positions]
        block.matrix[start : start + step] += 0.5 * rows
        block.matrix[:, start : start + step] += 0.5 * rows.T


def without_negative_directions(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Blocks with their negative eigenvalues (or entries of a diagonal) set to zero, with a warning that counts."""
    cut = [_cut(block) for block in blocks]
    if negative := sum(count for _, count, _ in cut):
        total, lowest = sum(len(block.positions) for block in blocks), min(low for _, _, low in cut)
        warnings.warn(
            f"the Hessian has {negative} of {total} directions of negative curvature (the lowest {lowest:.2g}): the "
            "network is not at a minimum of its loss there. They get the prior's precision alone. Train longer, or "
            "use curvature='ggn', which has none.",
            stacklevel=4,
        )
    return tuple(block for block, _, _ in cut)


def _cut(block: Block) -> tuple[Block, int, float]:
    if isinstance(block, DiagonalBlock):
        return (
            replace(block, values=block.values.clamp(min=0)),
            int((block.values < 0).sum()),
            float(block.values.min()),
        )
    if not isinstance(block, DenseBlock):
        return block, 0, 0.0
    values, vectors = torch.linalg.eigh(block.matrix.double())
    floor = -(torch.finfo(block.matrix.dtype).eps ** 0.5) * values.abs().max()
    positive = (vectors * values.clamp(min=0) @ vectors.T).to(block.matrix)
    return replace(block, matrix=positive), int((values < floor).sum()), float(values[0])
