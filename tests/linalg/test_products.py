"""Symmetric products."""

import pytest
import torch

from osculate.linalg import SquaredNorm, add_gram, mirror, products


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("least", [2, 2000])
@pytest.mark.parametrize("rows", [0, 1, 30])
def test_sums_of_grams(dtype: torch.dtype, least: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "PANEL_ENTRIES", least)
    monkeypatch.setattr(products, "SMALLEST_PANEL", 2)
    total = torch.zeros(2, 9, 9, dtype=dtype)
    by_rows, by_columns = torch.randn(2, rows, 9, dtype=dtype), torch.randn(2, 9, rows, dtype=dtype).mT
    parts = [by_rows, by_columns, torch.randn(9, 2, 5, dtype=dtype).permute(1, 2, 0)]
    for part in parts:
        add_gram(total, part)
    mirror(total)
    torch.testing.assert_close(total, sum(part.mT @ part for part in parts))
    assert torch.equal(total, total.mT)


def test_a_squared_norm_and_its_derivatives() -> None:
    root, v = torch.randn(5, 5, dtype=torch.double), torch.randn(5, dtype=torch.double, requires_grad=True)
    matrix, calls = root @ root.T, []

    def product(u: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return matrix @ u

    value = SquaredNorm.apply(product, v)
    torch.testing.assert_close(value, v @ matrix @ v)
    (gradient,) = torch.autograd.grad(value, v, retain_graph=True)
    torch.testing.assert_close(gradient, 2 * matrix @ v)
    assert len(calls) == 1
    assert torch.autograd.gradcheck(lambda u: SquaredNorm.apply(product, u), v)
    assert torch.autograd.gradgradcheck(lambda u: SquaredNorm.apply(product, u), v)
