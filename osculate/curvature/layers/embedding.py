"""Embeddings: a linear map of one-hot vectors."""

import torch.nn.functional as F
from torch import Tensor

from osculate.curvature.layers._base import Call, Use, affine, rule, with_ones


@rule(F.embedding)
def embedding(
    call: Call,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Use | None:
    """The rows of Wᵀ picked by one-hot vectors; the padding row has no gradient, as in torch."""
    if max_norm is not None:
        return None  # the lookup itself rescales the weight
    count, size = weight.shape

    def inputs(ones: bool) -> Tensor:
        tokens = input.reshape(len(input), -1)
        hot = F.one_hot(tokens, count).to(weight.dtype)
        if padding_idx is not None:
            hot[..., padding_idx] = 0
        return with_ones(hot.unsqueeze(2), ones)

    return affine(
        call,
        weight,
        None,
        inputs=inputs,
        outputs=lambda g: g.reshape(*g.shape[:2], -1, 1, size),
        matrix=lambda w: w.T.unsqueeze(0),
    )
