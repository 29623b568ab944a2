"""What a row measures, and the register of rows."""

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.timing import Effort, Spread


@dataclass(frozen=True)
class PeerResult:
    """The same work by a peer.

    Attributes:
        name: The peer and its backend.
        spread: Its cost in the unit of the row.
        note: On how much data it was measured, where that differs from ours.
    """

    name: str
    spread: Spread
    note: str = ""


@dataclass(frozen=True)
class Result:
    """One line of the table.

    Attributes:
        name: What was done.
        unit: What one unit of ``ours`` is.
        ours: Our cost in units, over repeats.
        bound: The largest median that meets the budget; None for a row without one.
        peers: The peers, default first; empty where they do not have it, or are not installed.
        faster: For each peer by name, the smallest speed-up that meets the budget.
        note: Anything that a reader must know, such as the convergence reached.
        limit: The floating-point work of ours in that of the unit, None where it was not counted.
        holds: What else must be true for the row to meet its budget (a tuning that has converged).
    """

    name: str
    unit: str
    ours: Spread
    bound: float | None = None
    peers: tuple[PeerResult, ...] = ()
    faster: dict[str, float] = field(default_factory=dict)
    note: str = ""
    holds: bool = True
    limit: float | None = None

    def speedup(self, peer: PeerResult) -> float:
        """How many times the peer's cost ours is smaller."""
        return peer.spread.median / self.ours.median

    @property
    def met(self) -> bool | None:
        """Whether the budget is met; None where there is none."""
        measured = {peer.name: self.speedup(peer) for peer in self.peers}
        checks = [measured[name] >= bound for name, bound in self.faster.items() if name in measured]
        if self.bound is not None:
            checks.append(self.ours.median <= self.bound)
        return all(checks) and self.holds if checks else None


Row = Callable[[Effort], Result]

#: The rows by name, in the order of the table.
ROWS: dict[str, Row] = {}
#: Names of the rows that put networks and data on the device of :mod:`benchmarks.timing`.
ANYWHERE: set[str] = set()


def row(name: str, anywhere: bool = False) -> Callable[[Row], Row]:
    """Register a function as a row; it can be measured on an accelerator too if ``anywhere``."""

    def register(function: Row) -> Row:
        ROWS[name] = function
        if anywhere:
            ANYWHERE.add(name)
        return function

    return register
