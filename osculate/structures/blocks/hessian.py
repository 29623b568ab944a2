"""The full Hessian in dense blocks, or as an estimate of its diagonal."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.columns import Hessian
from osculate.curvature.engine import Observation
from osculate.curvature.products import hessian_product
from osculate.linalg import spectrum
from osculate.structures.blocks._base import Block
from osculate.structures.blocks.dense import DenseBlock
from osculate.structures.blocks.diagonal import DiagonalBlock

#: Standard errors below zero from which an estimated entry counts as negative.
CERTAIN = 3


@dataclass(frozen=True, eq=False)
class EstimatedBlock(DiagonalBlock):
    """An estimated diagonal with the variance of the estimate; both add over batches, which use different signs."""

    state: ClassVar[tuple[str, ...]] = ("values", "variances")
    variances: Float[Tensor, " p"]


def for_hessian(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks that :func:`add_hessian` needs: diagonal ones also keep the variance of their estimate."""
    return tuple(
        EstimatedBlock(block.positions, block.values, torch.zeros_like(block.values))
        if isinstance(block, DiagonalBlock)
        else block
        for block in blocks
    )


def add_hessian(blocks: Sequence[Block], observation: Observation) -> Tensor:
    r"""Add the Hessian of one batch to dense or estimated diagonal blocks, and return the outputs f.

    .. math:: \hat h = \frac{1}{S} \sum_s \epsilon_s \circ H \epsilon_s, \qquad
              \operatorname{Var} \hat h_p = \frac{1}{S} \sum_{q \neq p} H_{pq}^2

    for S vectors ε of independent signs; the variance is estimated by the sample variance. [hutchinson1990]

    Cost: one Hessian-vector product for each parameter of a dense block, ``Hessian.samples`` for all diagonal ones.
    """
    o, kind = observation, observation.kind
    assert isinstance(kind, Hessian)
    f = o.outputs()
    product = partial(hessian_product, o.network, o.likelihood, o.x, o.y, memory=o.memory)
    estimated = [block for block in blocks if isinstance(block, EstimatedBlock)]
    if estimated:
        generator = torch.Generator().manual_seed(kind.seed + o.number)
        signs = torch.randint(2, (kind.samples, o.network.space.size), generator=generator).to(f) * 2 - 1
        each = signs * product(signs)
        # a single vector gives no estimate of the error
        spread = each.var(0) / kind.samples if kind.samples > 1 else torch.full_like(each[0], torch.inf)
        mean = each.mean(0)
        for diagonal in estimated:
            diagonal.values.add_(mean[diagonal.positions])
            diagonal.variances.add_(spread[diagonal.positions])
    for block in blocks:
        if isinstance(block, DenseBlock):
            size, every = len(block.positions), o.network.space.size
            step = max(1, size**2 // every)  # chunks of rows that take as much memory as the matrix itself
            for start in range(0, size, step):
                part = block.positions[start : start + step]
                units = f.new_zeros(len(part), every)
                units[torch.arange(len(part)), part] = 1
                rows = product(units)[:, block.positions]
                block.matrix[start : start + step] += 0.5 * rows
                block.matrix[:, start : start + step] += 0.5 * rows.T
    return f


def without_negative_curvature(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Blocks with their negative eigenvalues, or entries of a diagonal, set to zero, with a warning that counts."""
    _warn_of_entries([block for block in blocks if isinstance(block, EstimatedBlock)])
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


def _warn_of_entries(blocks: Sequence[EstimatedBlock]) -> None:
    """Warn of estimated entries below zero, and of how many may be due to noise."""
    if not any(bool((block.values < 0).any()) for block in blocks):
        return
    values = torch.cat([block.values for block in blocks])
    errors = torch.cat([block.variances for block in blocks]).sqrt()
    below, certain = int((values < 0).sum()), int((values < -CERTAIN * errors).sum())
    lowest = int(values.argmin())
    found = (
        f"{below} of the {len(values)} entries of the Hessian's diagonal are estimated below zero (the lowest "
        f"{float(values[lowest]):.2g}, standard error {float(errors[lowest]):.2g}), and get the prior's precision "
        "alone. "
    )
    if certain:
        found += (
            f"{certain} of them are below it by more than {CERTAIN} standard errors: train longer, or use "
            "curvature='ggn', which has no negative entries. "
        )
    if certain < below:
        found += (
            f"{below - certain} of them are below it by less, which the noise of the estimate explains: take more "
            "samples, osc.curvature.Hessian(samples=…)."
        )
    warnings.warn(found.strip(), stacklevel=5)


def _cut(block: Block) -> tuple[Block, int, float]:
    if isinstance(block, EstimatedBlock):
        return DiagonalBlock(block.positions, block.values.clamp(min=0)), 0, 0.0
    if not isinstance(block, DenseBlock):
        return block, 0, 0.0
    values, vectors = spectrum(block.matrix)
    floor = -(torch.finfo(block.matrix.dtype).eps ** 0.5) * values.abs().max()
    positive = (vectors * values.clamp(min=0) @ vectors.T).to(block.matrix)
    return replace(block, matrix=positive), int((values < floor).sum()), float(values[0])
