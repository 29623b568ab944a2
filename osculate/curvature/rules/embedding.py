"""Embeddings: a linear map of one-hot vectors, which are never made."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from osculate.curvature.forms import Lookup
from osculate.curvature.rules._base import Call, Use, dense, rows_of, squares_of


@rows_of(F.embedding)
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
    """The rows of the weight at the given indices; the padding row has no gradient, as in torch."""
    source = call.source(weight)
    if source is None or max_norm is not None:  # with max_norm the lookup rescales the weight in place
        return None
    count, size = weight.shape
    indices = input.reshape(len(input), -1).long()
    if padding_idx is not None:
        indices = torch.where(indices == padding_idx % count, -1, indices)

    def form(columns: Tensor) -> Lookup:
        return Lookup.of(indices, count, columns.reshape(*columns.shape[:2], -1, 1, size))

    def arrange(positions: Mapping[str, Tensor]) -> Tensor:
        return source.arrange(positions).reshape(1, count, size).mT

    if source.whole:
        return Use(source.names, form, arrange)
    return dense([source], lambda columns: [form(columns).matrices().mT.flatten(2)])


@squares_of(torch.embedding)
def embedding_squares(call: Call, weight: Tensor, indices: Tensor, padding_idx: int = -1, *_: Any, **__: Any) -> Tensor:
    """A selection of rows; options that change only gradients are ignored."""
    return torch.embedding(weight, indices, padding_idx)
