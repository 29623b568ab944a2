"""Diagonals from products with random signs, with their standard errors."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.linalg.cg import Product


class Estimate(NamedTuple):
    """The mean over random probes, and the standard error of that mean."""

    value: Tensor
    standard_error: Tensor


def averaged(values: Float[Tensor, "S *n"]) -> Estimate:
    """The mean over the first axis; the standard error of a single value is infinite."""
    if len(values) == 1:
        return Estimate(values[0], torch.full_like(values[0], float("inf")))
    return Estimate(values.mean(0), values.std(0) / len(values) ** 0.5)


def signs(
    count: int, n: int, generator: torch.Generator, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> Float[Tensor, "S n"]:
    """Rademacher vectors: entries 1 and −1 with equal probability, the same in every floating type."""
    return (2 * torch.randint(2, (count, n), generator=generator, dtype=torch.int8, device=generator.device) - 1).to(
        device=device, dtype=dtype
    )


def diagonal(product: Product, probes: Float[Tensor, "S n"]) -> Estimate:
    r"""The diagonal of a symmetric matrix: the mean of z ⊙ A z over Rademacher vectors z. [bekas2007]

    Args:
        product: v (S, n) to A v.
        probes: Vectors of signs, by :func:`signs`.

    Returns:
        An unbiased estimate (n,), of variance Σ_{j≠i} A_ij² / S, and its standard error. Cost: one product with all
        probes.

    >>> A = torch.diag(torch.arange(4.0))  # for a diagonal matrix it is exact
    >>> diagonal(lambda v: v @ A, signs(3, 4, torch.Generator().manual_seed(0), A.dtype)).value
    tensor([0., 1., 2., 3.])
    """
    return averaged(probes * product(probes))
