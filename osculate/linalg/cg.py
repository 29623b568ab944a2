"""Conjugate gradients: Λ⁻¹ b from products with Λ."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

#: A symmetric matrix as a function from rows (S, n) to their products (S, n).
Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Solution:
    """The result of :func:`conjugate_gradients`.

    Attributes:
        x: The solutions.
        remainder: b − A x, computed from x and not by the recursion.
        residual: ‖b − A x‖ / ‖b‖ of each.
        iterations: Total number of products with A.
    """

    x: Float[Tensor, "S n"]
    remainder: Float[Tensor, "S n"]
    residual: Float[Tensor, " S"]
    iterations: int


def conjugate_gradients(
    product: Product,
    b: Float[Tensor, "S n"],
    *,
    precondition: Product | None = None,
    start: Float[Tensor, "S n"] | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
) -> Solution:
    r"""Solve A x = b for several right-hand sides at once, A symmetric and positive definite.

    The residual of the recursion drifts from the true one in finite precision. When the recursion has converged, the
    true residual is computed, and the recursion is restarted from there while that helps. [hestenes1952]

    Args:
        product: v (S, n) to A v.
        b: Right-hand sides.
        precondition: v to M⁻¹ v, for a matrix M that approximates A and is easy to invert.
        start: The first iterates, zero by default: solutions of a similar problem save products.
        tolerance: Bound on the relative residual of each right-hand side.
        max_iterations: Approximate largest number of products with A.

    Returns:
        The solutions with their true residuals; a residual above the tolerance is also reported by a warning.

    Raises:
        ValueError: A is not positive definite, or A or b are not finite.

    Cost: one product with A an iteration, for all right-hand sides together; √cond(M⁻¹A) iterations.

    >>> A = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    >>> conjugate_gradients(lambda v: v @ A, torch.tensor([[3.0, 4.0]])).x.round(decimals=4)
    tensor([[1., 1.]])
    """
    size = b.norm(dim=-1)
    if not bool(size.isfinite().all()):
        raise ValueError("a right-hand side of conjugate gradients holds NaN or infinity: check the data.")
    goal = tolerance * size
    x, residual, used, before = torch.zeros_like(b), b, 0, float("inf")
    if start is not None:
        x, residual, used = start, b - product(start), 1
    while True:
        step, products = _recursion(product, residual, goal, precondition or (lambda v: v), max_iterations - used)
        x = x + step
        residual = b - product(x)
        used += products + 1
        relative = residual.norm(dim=-1) / size.where(size > 0, torch.ones_like(size))
        worst = float(relative.max())
        if worst <= tolerance or used >= max_iterations or worst > 0.5 * before:
            break
        before = worst
    if not worst <= tolerance:
        warnings.warn(
            f"conjugate gradients reached a relative residual of {worst:.1e} in {used} products, not {tolerance:.1e}. "
            "Allow more iterations, a larger tolerance, a better preconditioner, or compute in float64.",
            stacklevel=2,
        )
    return Solution(x, residual, relative, used)


def _recursion(
    product: Product, b: Tensor, goal: Float[Tensor, " S"], precondition: Product, limit: int
) -> tuple[Tensor, int]:
    """Conjugate gradients from zero until every residual of the recursion is at its goal."""
    x, residual = torch.zeros_like(b), b
    z = precondition(residual)
    p, rz = z, (residual * z).sum(-1)
    for used in range(max(0, limit)):
        active = residual.norm(dim=-1) > goal
        if not bool(active.any()):
            return x, used
        ap = product(p)
        curvature = (p * ap).sum(-1)
        _require_positive(curvature[active], p[active])
        step = torch.where(active, rz / curvature, 0.0).unsqueeze(-1)
        x, residual = x + step * p, residual - step * ap
        z = precondition(residual)
        new = (residual * z).sum(-1)
        p = z + torch.where(active, new / rz, 0.0).unsqueeze(-1) * p
        rz = new
    return x, max(0, limit)


def _require_positive(curvature: Float[Tensor, " S"], p: Float[Tensor, "S n"]) -> None:
    if bool((curvature > 0).all()):
        return
    if not bool(curvature.isfinite().all()):
        raise ValueError("conjugate gradients met NaN or infinity: the curvature or the prior overflowed.")
    worst = float((curvature / p.square().sum(-1)).min())
    raise ValueError(
        f"conjugate gradients met a direction of curvature {worst:.1e}: the matrix is not positive definite. "
        "Use a larger prior precision, curvature='ggn', or a float64 model."
    )
