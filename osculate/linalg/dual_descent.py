"""Stochastic dual descent: (I + XᵀX)⁻¹ u by its dual problem, from a few rows of X at a time."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

#: Momentum ρ, and the inverse of the share of the last steps that are averaged.
MOMENTUM, WINDOW = 0.9, 10
#: Power iterations for the largest eigenvalue of a block, and number of blocks for which they are done.
ITERATIONS, ASKED = 10, 4
#: Number of blocks that estimate the residual, and largest number of halvings of the step.
WATCHED, HALVINGS = 4, 12
#: Growth of the residual at which the step is halved, and the share to which it must fall within PATIENCE passes.
GROWTH, SHARE, PATIENCE = 10.0, 0.99, 10


@dataclass(frozen=True)
class RowBlocks:
    r"""X by blocks of its rows, computed on demand.

    The kernel X Xᵀ may also be S Y Yᵀ with a positive semi-definite S that does not couple the blocks: S Y in place of
    X, and Yᵀ in place of Xᵀ. That is the same problem in other dual coordinates, and the method takes the same steps.

    Attributes:
        sizes: RowBlocks of each block.
        times: Index of a block and w (S, p), to X_b w (S, n_b).
        transposed: Index of a block and c (S, n_b), to X_bᵀ c (S, p).
    """

    sizes: Sequence[int]
    times: Callable[[int, Tensor], Tensor]
    transposed: Callable[[int, Tensor], Tensor]


@dataclass(frozen=True)
class DualSolution:
    """The result of :func:`dual_descent`.

    Attributes:
        x: The solutions.
        residual: Estimate of the relative residual of each.
        passes: Number of passes over all rows.
    """

    x: Float[Tensor, "S p"]
    residual: Float[Tensor, " S"]
    passes: int


def dual_descent(
    rows: RowBlocks,
    right: Float[Tensor, "S p"],
    *,
    generator: torch.Generator,
    start: Float[Tensor, "S p"] | None = None,
    tolerance: float = 1e-3,
    max_passes: int = 500,
) -> DualSolution:
    r"""Solve (I + XᵀX) x = u for several right-hand sides at once, by descent along random blocks of dual coordinates.

    .. math:: x = u - X^\top \alpha, \quad (I + K) \alpha = X u, \quad K = X X^\top; \qquad
              v \leftarrow \rho v - \tfrac{1}{\lambda} P_b \big((I + K)(\alpha + \rho v) - X u\big), \quad
              \alpha \leftarrow \alpha + v

    with P_b the coordinates of one block, all blocks in a new random order in each pass, Nesterov momentum ρ = 0.9 and
    a geometric average of the iterates over the last tenth of the steps. The noise of the gradient is multiplicative:
    it vanishes at the solution. The images Xᵀα and Xᵀv are carried along, so that a step forms the rows of one block
    only. [lin2024]

    The step length follows from λ, the largest eigenvalue of the diagonal blocks of I + K, found by power iterations
    with :data:`ASKED` of them, which suffices if the same few directions are large in all blocks. If the residual
    grows, or stops falling, the step is halved, and the descent restarts from the start or the average with zero
    velocity.

    Args:
        rows: X.
        right: u.
        generator: Source of random numbers for the order of the blocks and the power iterations.
        start: The first iterates; solutions of a similar problem save passes.
        tolerance: Bound on ‖u − (I + XᵀX) x‖ / ‖u‖, estimated from :data:`WATCHED` of the blocks.
        max_passes: Largest number of passes over all rows.

    Returns:
        The solutions; a residual above the tolerance is also reported by a warning.

    Raises:
        ValueError: a right-hand side that is not finite.

    Cost: a pass is one product with X and one with Xᵀ. The number of passes grows with the condition number of I + K
    where that of conjugate gradients grows with its root, and falls with the number of blocks: for very many rows.
    """
    state = _Descent(rows, right, generator, start)
    eigenvalue, waited, passes, halved = state.largest_eigenvalue(), 0, 0, 0
    first = worst = best = float(state.residual().max())
    while worst > tolerance and passes < max_passes:
        state.sweep(eigenvalue)
        passes, waited = passes + 1, waited + 1
        worst = float(state.residual().max())
        if worst < SHARE * best:
            best, waited = worst, 0
        grown = worst > GROWTH * first
        if (grown or waited == PATIENCE) and halved < HALVINGS:
            eigenvalue, halved, waited = 2 * eigenvalue, halved + 1, 0
            state.rest(back=grown)
    if not worst <= tolerance:
        warnings.warn(
            f"stochastic dual descent reached a relative residual of {worst:.1e} in {passes} passes, not "
            f"{tolerance:.1e}. Allow more passes, a larger tolerance, a larger prior precision, or use conjugate "
            "gradients (solver='cg').",
            stacklevel=2,
        )
    return DualSolution(right - state.image[2], state.residual(), passes)


class _Descent:
    """Iterate, velocity and average, in dual coordinates (3, S, n) and as images under Xᵀ (3, S, p), initially at rest.

    Cost: one pass, and a second one with ``start``.
    """

    def __init__(
        self, rows: RowBlocks, right: Float[Tensor, "S p"], generator: torch.Generator, start: Tensor | None
    ) -> None:
        if not bool(right.isfinite().all()):
            raise ValueError("stochastic dual descent met NaN or infinity: the curvature or the prior overflowed.")
        self.rows, self.right, self.generator, self.steps = rows, right, generator, 0
        numbers = range(len(rows.sizes))
        ends = torch.tensor(rows.sizes).cumsum(0).tolist()
        self.parts = [slice(end - size, end) for end, size in zip(ends, rows.sizes, strict=True)]
        self.watched = torch.randperm(len(self.parts), generator=generator)[:WATCHED].tolist()
        self.b = torch.cat([rows.times(number, right) for number in numbers], 1)
        dual, image = torch.zeros_like(self.b), torch.zeros_like(right)
        if start is not None:  # a solution x has α = X x
            dual = torch.cat([rows.times(number, start) for number in numbers], 1)
            image = torch.stack([rows.transposed(number, dual[:, self.parts[number]]) for number in numbers]).sum(0)
        self.first = dual, image
        self.dual, self.image = (torch.stack([each, torch.zeros_like(each), each]) for each in self.first)

    def largest_eigenvalue(self) -> float:
        """The largest eigenvalue of I + X_b X_bᵀ over some blocks b."""
        asked, found = torch.randperm(len(self.parts), generator=self.generator)[:ASKED].tolist(), 0.0
        for block in asked:
            shape = (1, self.rows.sizes[block])
            z = torch.randn(shape, generator=self.generator, dtype=self.b.dtype).to(self.b.device)
            for _ in range(ITERATIONS):
                z = z / z.norm()
                z = z + self.rows.times(block, self.rows.transposed(block, z))
            found = max(found, float(z.norm()))
        return found

    def sweep(self, eigenvalue: float) -> None:
        """One step with each block, in a random order."""
        for block in torch.randperm(len(self.parts), generator=self.generator).tolist():
            change = self._slope(
                block, self.dual[0] + MOMENTUM * self.dual[1], self.image[0] + MOMENTUM * self.image[1]
            )
            change = change / -eigenvalue
            self.dual[1] *= MOMENTUM
            self.dual[1, :, self.parts[block]] += change
            self.image[1] *= MOMENTUM
            self.image[1] += self.rows.transposed(block, change)
            self.steps += 1
            share = min(1.0, WINDOW / self.steps)
            for each in (self.dual, self.image):
                each[0] += each[1]
                each[2] += share * (each[0] - each[2])

    def _slope(self, block: int, dual: Tensor, image: Tensor) -> Float[Tensor, "S n"]:
        """(I + K) α − X u for the coordinates of one block."""
        part = self.parts[block]
        return self.rows.times(block, image) + dual[:, part] - self.b[:, part]

    def rest(self, back: bool) -> None:
        """Restart without velocity, at the average or back at the start."""
        for each, first in zip((self.dual, self.image), self.first, strict=True):
            each[2] = first if back else each[2]
            each[0], each[1] = each[2], 0
        self.steps = 0

    def residual(self) -> Float[Tensor, " S"]:
        """The residual ‖Xᵀ((I + K) α − X u)‖ / ‖u‖ of the average, by an unbiased estimate; infinite for NaN."""
        left = torch.zeros_like(self.right)
        for block in self.watched:
            left += self.rows.transposed(block, self._slope(block, self.dual[2], self.image[2]))
        size = self.right.norm(dim=-1)
        found = len(self.parts) / len(self.watched) * left.norm(dim=-1) / size.where(size > 0, torch.ones_like(size))
        return found.nan_to_num(nan=float("inf"))
