"""The full Hessian in the structures that can hold it: as a matrix, or as an estimate of its diagonal."""

import warnings
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.columns import Hessian
from osculate.curvature.observation import Observation
from osculate.curvature.products import hessian_product
from osculate.structures._base import Curvature
from osculate.structures.blocks import Block, DenseBlock, DiagonalBlock


def add_hessian(curvature: Curvature, observation: Observation) -> Tensor:
    """Add the Hessian of one batch to dense or diagonal blocks, and give the outputs f.

    Cost: P Hessian-vector products for dense blocks, ``Hessian.samples`` for diagonal ones.
    """
    o, kind = observation, observation.kind
    assert isinstance(kind, Hessian)
    with torch.no_grad():
        f = o.network(o.x).to(o.network.state_dtype)
    o.check(f, o.y)
    product = partial(hessian_product, o.network, o.likelihood, o.x, o.y, memory=o.memory)
    size = curvature.space.size
    eye = torch.eye(size, dtype=f.dtype, device=f.device)
    if all(isinstance(block, DiagonalBlock) for block in curvature.blocks):
        generator = torch.Generator().manual_seed(kind.seed + o.number)
        signs = torch.randint(2, (kind.samples, size), generator=generator).to(f) * 2 - 1
        diagonal = (signs * product(signs)).mean(0)
        for block in curvature.blocks:
            block.tensors()["values"].add_(diagonal[block.positions])
        return f
    for block in curvature.blocks:
        rows = product(eye[block.positions])[:, block.positions]
        block.tensors()["matrix"].add_(0.5 * (rows + rows.T))
    return f


def without_negative_directions(curvature: Curvature) -> Curvature:
    """The Hessian with its negative eigenvalues (or entries of its diagonal) set to zero, with a warning."""
    cut = [_cut(block) for block in curvature.blocks]
    negative, total = sum(count for _, count, _ in cut), curvature.space.size
    if negative:
        lowest = min(low for _, _, low in cut)
        warnings.warn(
            f"the Hessian has {negative} of {total} directions of negative curvature (the lowest {lowest:.2g}): the "
            "network is not at a minimum of its loss there. They get the prior's precision alone. Train longer, or "
            "use curvature='ggn', which has none.",
            stacklevel=2,
        )
    return replace(curvature, blocks=tuple(block for block, _, _ in cut))


def _cut(block: Block) -> tuple[Block, int, float]:
    if isinstance(block, DiagonalBlock):
        values: Float[Tensor, " p"] = block.values
        return replace(block, values=values.clamp(min=0)), int((values < 0).sum()), float(values.min())
    if not isinstance(block, DenseBlock):
        return block, 0, 0.0
    values, vectors = torch.linalg.eigh(block.matrix.double())
    floor = -(torch.finfo(block.matrix.dtype).eps ** 0.5) * values.abs().max()
    positive = (vectors * values.clamp(min=0) @ vectors.T).to(block.matrix)
    return replace(block, matrix=positive), int((values < floor).sum()), float(values[0])
