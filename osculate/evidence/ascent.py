"""The maximum of the evidence at a fixed θ, where it is concave, by L-BFGS.

MacKay's fixed point sets each component of the gradient to zero in turn, and oscillates where most eigenvalues are
small or γ comes close to N C. Here its damped step, half the log of the ratio of the two sides, is the first metric of
L-BFGS; the step length is found on the directional derivative alone, which single precision does not spoil.
"""

from jaxtyping import Float
from torch import Tensor

from osculate.evidence.problem import Problem, State

#: Steps that L-BFGS looks back.
MEMORY = 10
#: The largest step of each, in logs.
LONGEST = 6.0


def ascend(problem: Problem, x: Float[Tensor, " D"], tolerance: float, max_steps: int) -> State:
    """The maximum from a start, or where ``max_steps`` evaluations lead."""
    budget = max_steps
    here = problem.at(x)
    pairs: list[tuple[Tensor, Tensor]] = []
    while here.violation > tolerance and budget > 0:
        direction = _direction(here, pairs)
        there, used = _step(problem, here, direction, budget)
        budget -= used
        move, change = there.x - here.x, here.gradient - there.gradient
        if float(move @ change) > 1e-12 * float(move.norm() * change.norm()):  # curvature, as concavity has it
            pairs = [*pairs[1 - MEMORY :], (move, change)]
        here = there
    return here


def _direction(here: State, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The L-BFGS direction of ascent."""
    direction, weights = here.gradient, []
    for move, change in reversed(pairs):
        weight = (move @ direction) / (move @ change)
        direction = direction - weight * change
        weights.append(weight)
    direction = here.first_step(direction)
    for (move, change), weight in zip(pairs, reversed(weights), strict=True):
        direction = direction + move * (weight - (change @ direction) / (move @ change))
    direction = direction.clamp(-LONGEST, LONGEST)  # each by itself: one without a maximum does not hold up the others
    if float(direction @ here.gradient) <= 0:
        direction = here.first_step(here.gradient).clamp(-LONGEST, LONGEST)
    return direction


def _step(problem: Problem, here: State, direction: Tensor, budget: int) -> tuple[State, int]:
    """Shorten the step by the secant rule until the slope along it has fallen to less than half its size."""
    length, slope = 1.0, float(here.gradient @ direction)
    for used in range(1, budget + 1):
        there = problem.at(problem.clamp(here.x + length * direction))
        new = float(there.gradient @ direction)
        if new >= -0.5 * slope or used == 10:
            break
        length *= min(0.7, max(0.1, slope / (slope - new)))
    return there, used
