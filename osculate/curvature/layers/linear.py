"""Linear layers on vectors, sequences, or any leading axes."""

import torch.nn.functional as F
from torch import Tensor

from osculate.curvature.layers._base import Call, Use, affine, rule, with_ones


@rule(F.linear)
def linear(call: Call, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Use | None:
    """y = W a + b: one position for a vector, one for each token of a sequence."""
    if input.ndim < 2 or call.name(input) is not None or weight.ndim != 2:
        return None
    return affine(
        call,
        weight,
        bias,
        inputs=lambda ones: with_ones(input.reshape(len(input), -1, 1, input.shape[-1]), ones),
        outputs=lambda g: g.reshape(*g.shape[:2], -1, 1, g.shape[-1]),
        matrix=lambda w: w.unsqueeze(0),
    )
