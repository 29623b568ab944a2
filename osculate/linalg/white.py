"""Fast white noise from a table, for networks that are drawn in every step of training."""

from collections.abc import Sequence
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

#: Bits of a draw, numbers per draw, and the smallest size for which the table is faster. The table, half a megabyte,
#: stays in a core's cache between the passes of a training step; one for all 16 bits would not.
BITS, WIDTH, TABLE_FROM = 14, 8, 2**16


def white(
    shape: Sequence[int], dtype: torch.dtype, device: torch.device | str, room: Tensor | None = None
) -> Float[Tensor, "..."]:
    """Draws of N(0, I).

    Many numbers in single precision on a CPU are drawn eight at a time, independently, from 16,384 equally probable
    points of an eight-dimensional N(0, I): mean zero and covariance I exactly, marginals up to ±3.7 to ±4.3 with a
    kurtosis of 3. Other draws are those of torch.

    Args:
        shape: Shape of the result.
        dtype: Floating type of the result.
        device: Device of the result.
        room: Earlier result of the same shape to overwrite: allocating memory costs nearly as much as the draws.

    Cost: at most a quarter of the time of ``torch.randn``.

    >>> white((3, 2), torch.float32, "cpu").shape
    torch.Size([3, 2])
    """
    size = torch.Size(shape).numel()
    if torch.device(device).type != "cpu" or dtype != torch.float32 or size < TABLE_FROM:
        return torch.randn(*shape, dtype=dtype, device=device)
    draws = -(-size // WIDTH)
    bits = torch.empty(-(-draws // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.uint16)
    rows = bits[:draws].to(torch.int32).bitwise_and_(2**BITS - 1)
    whole = torch.empty(draws, WIDTH) if room is None else room.as_strided((draws, WIDTH), (WIDTH, 1))
    torch.index_select(points(), 0, rows, out=whole)
    return whole.view(-1)[:size].view(*shape)


@cache
def points() -> Float[Tensor, "16384 8"]:
    """The table: quantiles of a scrambled Sobol' sequence and their negatives, whitened."""
    uniform = torch.quasirandom.SobolEngine(WIDTH, scramble=True, seed=0).draw(2 ** (BITS - 1), dtype=torch.double)
    half = torch.special.ndtri(uniform.clamp(2.0**-17, 1 - 2.0**-17))
    root = torch.linalg.cholesky(half.T @ half / len(half))
    whitened = torch.linalg.solve_triangular(root, half.T, upper=False).T
    return torch.cat([whitened, -whitened]).float()
