"""Conjugate gradients against dense solves, with and without a preconditioner, and what is said when they fail."""

import warnings

import pytest
import torch
from torch import Tensor

from osculate.linalg import DiagonalPlusLowRank, conjugate_gradients
from tests.errors import says
from tests.laws import assert_close


def spd(n: int, condition: float) -> Tensor:
    """A symmetric matrix with eigenvalues spread evenly in their logs."""
    basis = torch.linalg.qr(torch.randn(n, n, dtype=torch.double)).Q
    return basis * torch.logspace(0, torch.log10(torch.tensor(condition)).item(), n, dtype=torch.double) @ basis.T


def test_solutions_equal_those_of_the_dense_matrix() -> None:
    A, b = spd(30, 1e3), torch.randn(5, 30, dtype=torch.double)
    b[3] *= 1e-8  # each right-hand side has its own scale
    b[4] = 0
    found = conjugate_gradients(lambda v: v @ A, b, tolerance=1e-11)
    expected = torch.linalg.solve(A, b.T).T
    for x, truth in zip(found.x, expected, strict=True):
        assert_close(x, truth)
    assert float(found.residual.max()) <= 1e-11


def test_the_residual_is_the_true_one() -> None:
    A, b = spd(40, 1e4), torch.randn(2, 40, dtype=torch.double)
    with pytest.warns(UserWarning, match=says("relative residual", "5 products", "1.0e-12", "preconditioner")):
        found = conjugate_gradients(lambda v: v @ A, b, tolerance=1e-12, max_iterations=4)
    assert_close(found.residual, (b - found.x @ A).norm(dim=-1) / b.norm(dim=-1))
    assert float(found.residual.min()) > 1e-3


def test_a_preconditioner_saves_products() -> None:
    factor = 10 * torch.randn(6, 200, dtype=torch.double)
    delta = torch.logspace(-1, 1, 200, dtype=torch.double)
    noise = 0.01 * spd(200, 10.0)
    A, b = delta.diag() + factor.T @ factor + noise, torch.randn(3, 200, dtype=torch.double)
    expected = torch.linalg.solve(A, b.T).T
    used = {}
    for name, precondition in {
        "none": None,
        "diagonal": lambda v: v / A.diagonal(),
        "low rank": DiagonalPlusLowRank(delta, factor).solve,
    }.items():
        found = conjugate_gradients(lambda v: v @ A, b, precondition=precondition, tolerance=1e-8)
        assert_close(found.x, expected, 1e-6)
        used[name] = found.iterations
    assert used["low rank"] < 0.2 * min(used["diagonal"], used["none"])


def test_a_residual_that_the_recursion_lost_is_recovered() -> None:
    """In single precision the recursion believes in residuals that are not there; the restart sees the true one."""
    A = spd(100, 1e4).float()
    b = torch.randn(1, 100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = conjugate_gradients(lambda v: v @ A, b, tolerance=1e-9)
    assert_close(found.residual, (b - found.x @ A).norm(dim=-1) / b.norm(dim=-1), 1e-3)
    assert 1e-9 < float(found.residual) < 1e-3


@pytest.mark.parametrize(
    ("diagonal", "words"),
    [([1.0, -0.5, 2.0], ("curvature -", "not positive definite")), ([1.0, float("nan"), 2.0], ("NaN",))],
)
def test_a_matrix_that_cannot_be_solved_is_refused(diagonal: list[float], words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        conjugate_gradients(lambda v: v * torch.tensor(diagonal), torch.eye(3))
