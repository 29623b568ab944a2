"""Stochastic dual descent against dense solves, in blocks of every kind, and what is said when it does not converge."""

import warnings

import pytest
import torch
from torch import Tensor

from osculate.linalg import RowBlocks, dual_descent
from tests.errors import says
from tests.laws import assert_close


def rows_of(X: Tensor, size: int, left: Tensor | None = None) -> RowBlocks:
    """X in blocks, or S X for the products and X for the transposed ones."""
    parts = torch.arange(len(X)).split(size)
    SX = X if left is None else left @ X
    return RowBlocks([len(p) for p in parts], lambda k, w: w @ SX[parts[k]].T, lambda k, c: c @ X[parts[k]])


def problem(n: int = 60, p: int = 20, scale: float = 0.5, decay: float = -1.0) -> tuple[Tensor, Tensor, Tensor]:
    """X, right-hand sides u and solutions."""
    X = scale * torch.randn(n, p, dtype=torch.double) * torch.logspace(0, decay, p, dtype=torch.double)
    u = torch.randn(3, p, dtype=torch.double)
    return X, u, torch.linalg.solve(torch.eye(p, dtype=torch.double) + X.T @ X, u.T).T


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("size", [7, 20, 60], ids=lambda size: f"blocks of {size}")
def test_solutions_are_those_of_the_dense_matrix(size: int) -> None:
    """Of many small blocks, few large ones (where the first step is too long), and one."""
    X, u, expected = problem()
    u[1] *= 1e-6  # each right-hand side has its own scale
    expected[1] *= 1e-6
    found = dual_descent(rows_of(X, size), u, generator=generator(), tolerance=1e-5)
    for x, truth in zip(found.x, expected, strict=True):
        assert_close(x, truth, 1e-4)
    assert float(found.residual.max()) <= 1e-5


def test_other_dual_coordinates_take_the_same_steps() -> None:
    """K = S Y Yᵀ with S block diagonal over the blocks is K = X Xᵀ with X = √S Y."""
    Y, u, _ = problem()
    roots = 0.4 * torch.randn(10, 6, 6, dtype=torch.double)
    S = torch.block_diag(*(root @ root.mT for root in roots))
    X = torch.block_diag(*roots).T @ Y
    one = dual_descent(rows_of(X, 6), u, generator=generator(), tolerance=1e-6)
    two = dual_descent(rows_of(Y, 6, S), u, generator=generator(), tolerance=1e-6)
    expected = torch.linalg.solve(torch.eye(20, dtype=torch.double) + X.T @ X, u.T).T
    assert_close(one.x, expected, 1e-5)
    assert_close(two.x, expected, 1e-5)


def test_the_residual_watched_is_about_the_true_one_and_a_seed_repeats() -> None:
    X, u, _ = problem()
    one, two = (dual_descent(rows_of(X, 6), u, generator=generator(), tolerance=1e-2) for _ in range(2))
    assert torch.equal(one.x, two.x)
    assert not torch.equal(one.x, dual_descent(rows_of(X, 6), u, generator=generator(1), tolerance=1e-2).x)
    true = (u - one.x - one.x @ X.T @ X).norm(dim=-1) / u.norm(dim=-1)
    assert float(true.max()) < 1e-2 * 5
    assert float(true.min()) > 1e-2 / 100


def test_a_start_saves_passes() -> None:
    X, u, expected = problem()
    cold = dual_descent(rows_of(X, 6), u, generator=generator(), tolerance=1e-4)
    warm = dual_descent(rows_of(X, 6), u, generator=generator(), tolerance=1e-4, start=expected * (1 + 1e-5))
    assert warm.passes < 0.5 * cold.passes
    assert_close(warm.x, expected, 1e-3)


def test_too_few_passes_are_a_warning_with_numbers() -> None:
    X, u, _ = problem(scale=30.0)
    with pytest.warns(UserWarning, match=says("relative residual", "3 passes", "1.0e-08", "solver='cg'")):
        found = dual_descent(rows_of(X, 6), u, generator=generator(), tolerance=1e-8, max_passes=3)
    assert found.passes == 3
    assert bool(found.x.isfinite().all())


def test_what_is_not_finite_is_refused() -> None:
    X, u, _ = problem()
    with pytest.raises(ValueError, match="NaN or infinity"):
        dual_descent(rows_of(X, 6), u / 0, generator=generator())


def test_a_right_hand_side_of_zero_has_the_solution_zero() -> None:
    X, u, _ = problem()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = dual_descent(rows_of(X, 6), torch.zeros_like(u), generator=generator())
    assert not bool(found.x.any())
