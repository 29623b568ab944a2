"""White noise at the speed of a table, for networks that are drawn anew in every step of training."""

from collections.abc import Sequence
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

#: Bits of a draw, and numbers from which on a table is faster than computing.
BITS, MANY = 16, 2**16


def white(shape: Sequence[int], dtype: torch.dtype, device: torch.device | str) -> Float[Tensor, "..."]:
    """Independent draws of N(0, 1).

    Many numbers in single precision on a CPU are drawn from the 65,536 equally probable quantiles of N(0, 1), which
    are scaled to variance one: symmetric, up to ±4.3, with a kurtosis of 2.999. Other draws are those of torch.

    Args:
        shape: of the result.
        dtype: of the result.
        device: of the result.

    Cost: two fifths of the time of ``torch.randn``.

    >>> white((3, 2), torch.float32, "cpu").shape
    torch.Size([3, 2])
    """
    size = torch.Size(shape).numel()
    if torch.device(device).type != "cpu" or dtype != torch.float32 or size < MANY:
        return torch.randn(*shape, dtype=dtype, device=device)
    bits = torch.empty(-(-size * BITS // 64), dtype=torch.int64).random_(-(2**63), None).view(torch.uint16)
    numbers = bits[:size].to(torch.int32)
    del bits  # a large network is short of memory
    return quantiles().index_select(0, numbers).reshape(*shape)


@cache
def quantiles() -> Float[Tensor, "65536"]:
    """The table."""
    middles = (torch.arange(2**BITS, dtype=torch.double) + 0.5) / 2**BITS
    values = torch.special.ndtri(middles)
    return (values / values.square().mean().sqrt()).float()
