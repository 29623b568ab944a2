"""Roots of covariances: each matrix of a batch by itself, singular or not."""

import pytest
import torch

from osculate.linalg import root
from tests.laws import assert_close


def of_rank(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    a = torch.randn(count, 5, rank, dtype=dtype)
    return a @ a.mT


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_root_does_not_depend_on_the_other_matrices_of_the_batch(dtype: torch.dtype) -> None:
    regular, singular = of_rank(7, 4, dtype), of_rank(3, 4, dtype)
    batch = torch.cat([regular, singular, torch.zeros(1, 5, 5, dtype=dtype), 1e12 * regular])
    together = root(batch)
    tolerance = 100 * torch.finfo(dtype).eps
    for matrix, found in zip(batch, together, strict=True):
        assert torch.equal(found, root(matrix))
        assert_close(found @ found.T, matrix, tolerance)
    assert torch.equal(together[:4], together[:4].tril())
    assert_close(root(batch.reshape(13, 1, 5, 5)).reshape(13, 5, 5), together, 1e-15)


def test_rounding_does_not_choose_the_root_of_a_singular_matrix() -> None:
    """Cholesky fails for about half of the matrices of less than full rank, as their last pivots are rounded."""
    batch = of_rank(4, 50, torch.double)
    _, info = torch.linalg.cholesky_ex(batch)
    assert 0 < int((info != 0).sum()) < 50
    assert_close(root(batch), root(batch).mT)


def test_regular_matrices_keep_their_gradient_beside_a_singular_one() -> None:
    batch = torch.cat([of_rank(7, 1, torch.double), torch.zeros(1, 5, 5, dtype=torch.double)]).requires_grad_()
    alone = batch.detach()[:1].requires_grad_()
    for given in (batch, alone):
        root(given)[0].sin().sum().backward()
    assert_close(batch.grad[:1], alone.grad)


def test_what_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN or infinity"):
        root(torch.tensor([[1.0, 0.0], [0.0, torch.nan]]))
