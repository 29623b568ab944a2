"""Interpolation of tables by a few of their columns."""

import pytest
import torch

from osculate.linalg import interpolated


def table(decades: float, delta: float, dtype: torch.dtype = torch.float) -> torch.Tensor:
    """Reciprocal eigenvalues of a Kronecker product and a prior precision."""
    rows, columns = (torch.logspace(-decades, 1, size, dtype=torch.double) for size in (120, 90))
    return (rows.unsqueeze(1) * columns + delta).reciprocal().to(dtype)


@pytest.mark.parametrize(("decades", "delta"), [(2.0, 1.0), (4.0, 1.0), (1.0, 0.01), (3.0, 100.0)])
def test_every_entry_is_within_rounding(decades: float, delta: float) -> None:
    exact = table(decades, delta, torch.double)
    factors = interpolated(exact.float())
    assert factors is not None
    left, right = factors
    assert left.shape[1] <= 20
    assert left.dtype == right.dtype == torch.float
    assert ((left.double() @ right.double() - exact) / exact).abs().max() < 2e-6
    weights = torch.rand(50, 120)
    torch.testing.assert_close(weights @ left @ right, weights @ exact.float(), rtol=1e-5, atol=0)


def test_tables_that_no_few_columns_give() -> None:
    torch.manual_seed(0)
    assert interpolated(torch.rand(40, 30) + 0.1) is None
    assert interpolated(torch.ones(2, 3)) is None  # nothing to gain
    assert interpolated(torch.zeros(40, 30)) is None
    assert interpolated(table(15.0, 1e-9)) is None  # of both signs and larger than the entries
