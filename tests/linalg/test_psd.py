"""Factorisations of matrices that are singular, badly scaled or not finite: each matrix of a batch by itself."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from osculate.linalg import cholesky, eigh, jittered, nystrom, root, spectrum
from osculate.linalg.psd import LADDER
from tests.errors import says
from tests.laws import assert_close

TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
#: Standard deviations from 1e-15 to 1e15.
SPREAD = torch.logspace(-15, 15, 5, dtype=torch.double)


def of_rank(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    a = torch.randn(count, 5, rank, dtype=dtype)
    return a @ a.mT


@TYPES
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


def scaled(matrix: Tensor) -> Tensor:
    """A matrix with entries from 1e-30 to 1e30."""
    return matrix * (SPREAD * SPREAD.unsqueeze(1)).to(matrix)


def correlations(matrix: Tensor) -> Tensor:
    return matrix.double() / SPREAD / SPREAD.unsqueeze(1)


@TYPES
def test_small_entries_beside_large_ones_keep_their_size(dtype: torch.dtype) -> None:
    regular, singular = of_rank(7, 1, dtype)[0], of_rank(3, 1, dtype)[0]
    for factor in (root(scaled(regular)), cholesky(scaled(regular))):
        half = factor.double()
        assert_close(correlations(half @ half.T), regular.double(), 100 * torch.finfo(dtype).eps)
    factor, _ = jittered(scaled(singular))
    assert_close(correlations(factor @ factor.T), singular.double(), 2 * LADDER[-1])


@TYPES
def test_a_matrix_that_needs_jitter_leaves_the_others_of_the_batch_alone(dtype: torch.dtype) -> None:
    regular, singular = of_rank(7, 3, dtype), of_rank(3, 2, dtype)
    with pytest.warns(UserWarning, match="of its diagonal was added"):
        factors = cholesky(torch.cat([regular, singular, torch.zeros(1, 5, 5, dtype=dtype)]))
    assert torch.equal(factors[:3], cholesky(regular))
    assert_close(factors[3:5] @ factors[3:5].mT, singular.double(), 2 * LADDER[-1])


@TYPES
def test_an_entry_that_is_negative_by_rounding_gets_a_jitter_relative_to_the_others(dtype: torch.dtype) -> None:
    factor, jitter = jittered(torch.tensor([[1.0, 0.0], [0.0, -1e-13]], dtype=dtype))
    assert 0 < jitter <= 1e-12
    assert_close(factor[0, 0], torch.ones((), dtype=torch.double), 1e-11)


def test_an_indefinite_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match=says("1e-06 of its diagonal", "larger prior precision")):
        cholesky(torch.tensor([[1.0, 2.0], [2.0, 1.0]]))


def failing(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the eigendecomposition not converge this often."""
    true: Callable[..., Any] = torch.linalg.eigh
    left = [times]

    def eigendecomposition(matrix: Tensor) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise torch.linalg.LinAlgError("the algorithm failed to converge")
        return true(matrix)

    monkeypatch.setattr(torch.linalg, "eigh", eigendecomposition)


@TYPES
def test_an_eigendecomposition_that_does_not_converge_is_repeated_with_jitter(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = torch.cat([of_rank(3, 2, dtype), torch.zeros(1, 5, 5, dtype=dtype)])
    failing(2, monkeypatch)
    with pytest.warns(UserWarning, match=r"did not converge; 1e-12 of the diagonal was added"):
        values, vectors = eigh(batch)
    assert_close((vectors * values.unsqueeze(-2)) @ vectors.mT, batch, 100 * torch.finfo(dtype).eps)
    failing(100, monkeypatch)
    with pytest.raises(ValueError, match=says("does not converge", "larger prior precision")):
        spectrum(batch)


def test_a_factorisation_that_succeeds_says_nothing_and_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    for name in ("eigh", "cholesky_ex"):
        true = getattr(torch.linalg, name)
        monkeypatch.setattr(torch.linalg, name, lambda m, true=true, name=name: done.append(name) or true(m))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cholesky(of_rank(7, 2, torch.float32))
        eigh(of_rank(7, 2, torch.float32))
    assert done == ["cholesky_ex", "eigh"]


@pytest.mark.parametrize("call", [cholesky, spectrum, eigh, lambda m: nystrom(torch.eye(2), m, 1)])
def test_no_factorisation_of_what_is_not_finite(call: Callable[[Tensor], Any]) -> None:
    with pytest.raises(ValueError, match="NaN or infinity"):
        call(torch.tensor([[1.0, 0.0], [0.0, torch.nan]]))
