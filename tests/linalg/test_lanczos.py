"""Functions of a matrix and their traces against its eigendecomposition."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from osculate.linalg import apply, diagonal, log_determinant, quadrature, signs
from osculate.linalg.lanczos import Krylov
from tests.errors import says
from tests.laws import assert_close


def matrix(n: int, largest: float = 50.0) -> Tensor:
    basis = torch.linalg.qr(torch.randn(n, n, dtype=torch.double)).Q
    return basis * torch.linspace(1, largest, n, dtype=torch.double) @ basis.T


def spectral(A: Tensor, function: Callable[[Tensor], Tensor] = torch.log) -> Tensor:
    values, vectors = torch.linalg.eigh(A)
    return vectors * function(values) @ vectors.T


def probes(count: int, n: int, seed: int = 0) -> Tensor:
    return signs(count, n, torch.Generator().manual_seed(seed), torch.double)


def test_the_basis_stays_orthonormal() -> None:
    A = matrix(60, 1e8)
    krylov = Krylov(lambda v: v @ A, torch.randn(2, 60, dtype=torch.double))
    for _ in range(40):
        krylov.grow()
    basis = torch.stack(krylov.basis, 1)  # (S, m, n)
    assert_close(basis @ basis.mT, torch.eye(41, dtype=torch.double).expand(2, -1, -1), 1e-12)
    reduced = basis[:, :-1] @ A @ basis[:, :-1].mT
    values, vectors = krylov.ritz()
    assert_close(vectors * values.unsqueeze(1) @ vectors.mT, reduced, 1e-12)


@pytest.mark.parametrize("function", [torch.rsqrt, torch.log, torch.reciprocal], ids=lambda f: f.__name__)
def test_functions_of_a_matrix_equal_those_of_its_eigenvalues(function: Callable[[Tensor], Tensor]) -> None:
    A, v = matrix(40), torch.randn(3, 40, dtype=torch.double)
    assert_close(apply(lambda w: w @ A, v, function, 1e-12), v @ spectral(A, function))
    assert_close(
        quadrature(lambda w: w @ A, v, function, 1e-12).integrate(function),
        torch.einsum("sn,nm,sm->s", v, spectral(A, function), v),
    )


def test_a_space_that_ends_early_is_complete() -> None:
    """Three eigenvalues end the Krylov space after three steps, for each start at its own time."""
    A = torch.diag(torch.tensor([1.0, 2.0, 2.0, 5.0, 5.0, 5.0], dtype=torch.double))
    v = torch.eye(6, dtype=torch.double)[:2] + torch.tensor([[0.0], [1.0]], dtype=torch.double)
    v = torch.cat([v, torch.zeros(1, 6, dtype=torch.double)])
    assert_close(apply(lambda w: w @ A, v, torch.rsqrt, 1e-15), v @ spectral(A, torch.rsqrt), 1e-14)
    found = quadrature(lambda w: w @ A, v, torch.log, 1e-15)
    assert_close(found.integrate(torch.log), torch.einsum("sn,nm,sm->s", v, spectral(A, torch.log), v), 1e-14)


def test_steps_that_run_out_are_a_warning_with_numbers() -> None:
    A, v = matrix(60, 1e4), torch.randn(1, 60, dtype=torch.double)
    with pytest.warns(UserWarning, match=says("changed by", "last of 4 steps", "1.0e-10")):
        apply(lambda w: w @ A, v, torch.rsqrt, 1e-10, max_steps=4)
    with pytest.warns(UserWarning, match=says("quadrature", "last of 4 steps")):
        quadrature(lambda w: w @ A, v, torch.log, 1e-10, max_steps=4)


def test_log_determinants_are_within_their_standard_error() -> None:
    A = matrix(50)
    parts = [quadrature(lambda v: v @ A, some, torch.log, 1e-10) for some in probes(200, 50).split(70)]
    value, error = log_determinant(parts)
    assert abs(float(value - A.logdet())) < 3 * float(error)
    assert 0 < float(error) < 0.02 * float(A.logdet())


def test_log_determinants_of_indefinite_matrices_are_refused() -> None:
    A = torch.diag(torch.tensor([1.0, -2.0, 3.0]))
    found = quadrature(lambda v: v @ A, torch.ones(1, 3), lambda t: t.abs().log())
    with pytest.raises(ValueError, match=says("-2.0e+00", "not positive definite", "prior precision")):
        log_determinant([found])


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        apply(lambda v: v * float("nan"), torch.ones(1, 3), torch.sqrt)


def test_diagonals_are_unbiased_with_the_stated_error() -> None:
    A = matrix(30, 5.0)
    few = torch.stack([diagonal(lambda v: v @ A, probes(20, 30, seed)).value for seed in range(200)])
    error = few.std(0) / 200**0.5
    assert float(((few.mean(0) - A.diagonal()) / error).abs().max()) < 4.5
    stated = diagonal(lambda v: v @ A, probes(2000, 30)).standard_error
    exact = ((A.square().sum(1) - A.diagonal().square()) / 2000).sqrt()
    assert_close(stated, exact, 0.1)


def test_one_probe_has_no_error_to_state() -> None:
    assert bool(diagonal(lambda v: 2 * v, probes(1, 4)).standard_error.isinf().all())


def test_signs_are_the_same_in_every_floating_type() -> None:
    one, two = (signs(3, 7, torch.Generator().manual_seed(5), dtype) for dtype in (torch.float, torch.double))
    assert torch.equal(one.double(), two)
    assert bool((one.abs() == 1).all())
