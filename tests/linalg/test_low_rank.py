"""Eigendecompositions from one sketch, and a diagonal plus low rank, against the dense matrix."""

import pytest
import torch
from torch import Tensor

from osculate.linalg import DiagonalPlusLowRank, nystrom, signs
from tests.errors import says
from tests.laws import assert_close


def psd(n: int, rank: int, largest: float = 1e4) -> Tensor:
    """A matrix of this rank with eigenvalues from 1 to ``largest``."""
    basis = torch.linalg.qr(torch.randn(n, rank, dtype=torch.double)).Q
    return basis * torch.logspace(0, torch.log10(torch.tensor(largest)).item(), rank, dtype=torch.double) @ basis.T


def sketching(count: int, n: int, dtype: torch.dtype = torch.double) -> Tensor:
    return signs(count, n, torch.Generator().manual_seed(0), dtype)


@pytest.mark.parametrize(("rank", "vectors"), [(1, 10), (9, 10), (10, 10), (3, 40)])
def test_it_is_exact_up_to_the_number_of_test_vectors(rank: int, vectors: int) -> None:
    G, tests = psd(80, rank), sketching(vectors, 80)
    values, vectors_found = nystrom(tests, tests @ G, rank=vectors)
    assert_close(vectors_found.T * values @ vectors_found, G)
    assert_close(values[:rank], torch.linalg.eigvalsh(G).flip(0)[:rank])
    assert_close(vectors_found @ vectors_found.T, torch.eye(len(values), dtype=torch.double), 1e-6)


def test_sketches_add() -> None:
    one, two, tests = psd(60, 4), psd(60, 5), sketching(12, 60)
    values, vectors = nystrom(tests, tests @ one + tests @ two, 12)
    assert_close(vectors.T * values @ vectors, one + two)


def test_it_lies_below_the_matrix_and_keeps_the_largest_eigenvalues() -> None:
    G, tests = psd(80, 60), sketching(30, 80)
    values, vectors = nystrom(tests, tests @ G, rank=20)
    assert len(values) == 20
    assert bool((values.diff() <= 0).all())
    below = torch.linalg.eigvalsh(G - vectors.T * values @ vectors)
    assert float(below.min()) > -1e-10 * float(values[0])
    assert_close(values[:5], torch.linalg.eigvalsh(G).flip(0)[:5], 0.1)


def test_single_precision_keeps_what_it_can_hold() -> None:
    G = psd(300, 40, 1e3)
    tests = sketching(60, 300, torch.float)
    values, vectors = nystrom(tests, tests @ G.float(), 60)
    assert_close((vectors.double().T * values) @ vectors.double(), G, 1e-4)


def test_no_matrix_at_all_has_no_eigenvalues() -> None:
    values, vectors = nystrom(sketching(3, 80), torch.zeros(3, 80, dtype=torch.double), 3)
    assert values.shape == (0,)
    assert vectors.shape == (0, 80)


def test_an_indefinite_matrix_is_refused() -> None:
    tests = sketching(10, 80)
    with pytest.raises(ValueError, match=says("not positive semi-definite", "curvature='ggn'")):
        nystrom(tests, tests @ (psd(80, 5) - psd(80, 5)), 10)


@pytest.mark.parametrize("k", [0, 1, 7])
def test_diagonal_plus_low_rank_equals_the_dense_matrix(k: int) -> None:
    d, F = torch.rand(20, dtype=torch.double) + 0.1, 5 * torch.randn(k, 20, dtype=torch.double)
    m, dense = DiagonalPlusLowRank(d, F), d.diag() + F.T @ F
    inverse, v = dense.inverse(), torch.randn(2, 3, 20, dtype=torch.double)
    assert_close(m.log_det_ratio(), dense.logdet() - d.log().sum())
    assert_close(m.multiply(v), v @ dense)
    assert_close(m.solve(v), v @ inverse)
    assert_close(m.halves(v) @ m.halves(v).mT, v @ inverse @ v.mT)
    eye = torch.eye(20, dtype=torch.double)
    assert_close(m.colour(eye).T @ m.colour(eye), inverse)
    assert_close(m.whiten(eye) @ m.whiten(eye).T, inverse)
    assert_close(m.colour(eye), m.whiten(eye).T)
    assert_close(m.variance(), inverse.diagonal())
    assert_close(m.effective_parameters() + d * inverse.diagonal(), torch.ones(20, dtype=torch.double))


def test_small_variances_survive_a_vague_prior_in_single_precision() -> None:
    """vᵀ Λ⁻¹ v where the data leave 1e-8 of the prior variance: the usual formula would round to noise."""
    F = 1e2 * torch.linalg.qr(torch.randn(50, 5, dtype=torch.double)).Q.T
    d, v = torch.full((50,), 1e-4, dtype=torch.double), F[:2]
    exact = v @ torch.linalg.solve(d.diag() + F.T @ F, v.T)
    half = DiagonalPlusLowRank(d.float(), F.float()).halves(v.float())
    assert_close((half @ half.T).diagonal().double(), exact.diagonal(), 0.01)


def test_log_determinants_have_gradients() -> None:
    d, F = torch.rand(6, dtype=torch.double) + 0.1, torch.randn(2, 6, dtype=torch.double)
    assert torch.autograd.gradcheck(
        lambda d, F: DiagonalPlusLowRank(d, F).log_det_ratio(), (d.requires_grad_(), F.requires_grad_())
    )
