"""Interpolation of a table of positive numbers by a few of its columns."""

import torch
from jaxtyping import Float
from torch import Tensor

#: Relative error of an entry, in units of rounding of the table's type.
ROUNDING = 16


def interpolated(table: Float[Tensor, "n m"]) -> tuple[Float[Tensor, "n r"], Float[Tensor, "r m"]] | None:
    """Columns P of a positive table and coefficients X with P X = table within rounding, or None.

    Every entry is within a few roundings: the residual of the rounded factors counts, and what rounding of a product
    with them may make of terms of both signs. A table of 1/(λ_i μ_j + δ) has r of about ten. The columns are chosen by
    orthogonalisation with pivoting, of a table whose rows and columns are scaled to the same size. [halko2011]

    Args:
        table: Positive numbers.

    Returns:
        The factors in the type of the table; None where a quarter of the columns or rows does not suffice.

    Cost: r passes over the table.
    """
    exact = table.double()
    rows = exact.log().mean(1, keepdim=True).exp()
    columns = (exact / rows).log().mean(0).exp()
    scaled, tolerance = exact / rows / columns, ROUNDING * torch.finfo(table.dtype).eps
    rest, chosen = scaled.clone(), list[int]()
    for _ in range(min(table.shape) // 4):
        chosen.append(int(rest.square().sum(0).argmax()))
        direction = rest[:, chosen[-1]] / rest[:, chosen[-1]].norm()
        rest -= direction.unsqueeze(1) * (direction @ rest)
        if not float((rest / scaled).abs().max()) <= tolerance / 2:
            continue
        weights = torch.linalg.lstsq(scaled[:, chosen], scaled).solution
        left, right = table[:, chosen], (weights * columns / columns[chosen].unsqueeze(1)).to(table)
        product, sizes = left.double() @ right.double(), left.double() @ right.double().abs()
        close = float(((product - exact).abs() / exact).max()) <= tolerance  # also False for NaN
        return (left, right) if close and float((sizes / exact).max()) <= ROUNDING else None
    return None
