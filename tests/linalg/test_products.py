"""Symmetric products."""

import pytest
import torch

from osculate.linalg import add_gram, mirror, products


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
