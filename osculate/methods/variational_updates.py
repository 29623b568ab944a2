"""How the variances follow in variational Laplace."""

from dataclasses import dataclass

from osculate.checks import require_whole
from osculate.methods._mean_field import START


@dataclass(frozen=True)
class VariationalUpdates:
    """When the regulariser is taken, of which data, and how the variances follow.

    Args:
        every: steps from one regulariser to the next; each then counts that often.
        rows: share of the batch that it is made of, with batch normalisation 16 data at least. All of it shares the
            forward pass of the loss, where no dropout is active; a part has a pass of its own.
        memory: γ of the running Fisher information, for ``sigma="closed_form"``: what one batch leaves of it.
        multiplier: of the learning rate of log σ, for ``sigma="learned"``; 0 keeps σ as it starts.
        start: σ at the start, in units of the prior's standard deviation.
        recompute: whether the variances of the result, for ``sigma="closed_form"``, are those of the exact curvature of
            all data at the final mean, in place of the running one.

    Raises:
        ValueError: a number out of its range.
    """

    every: int = 2
    rows: float = 0.25
    memory: float = 0.99
    multiplier: float = 10.0
    start: float = START
    recompute: bool = True

    def __post_init__(self) -> None:
        require_whole("every", self.every)
        if not 0 < self.rows <= 1:
            raise ValueError(f"rows is a share of the batch, above 0 and at most 1, got {self.rows}.")
        if not 0 <= self.memory < 1:
            raise ValueError(f"memory must be at least 0 and below 1, got {self.memory}.")
        if not self.multiplier >= 0:
            raise ValueError(f"multiplier must not be negative, got {self.multiplier}.")
        if not self.start > 0:
            raise ValueError(f"start must be positive, got {self.start}.")


#: The regulariser of the whole batch in every step.
EXACT = VariationalUpdates(every=1, rows=1.0)
