"""One batch as a structure sees it: the data, the network at its mode, and the curvature that is asked for."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from osculate.batches import require_finite
from osculate.curvature.columns import Columns, Kind
from osculate.curvature.engine import Piece, pieces
from osculate.curvature.forms import Outer
from osculate.curvature.plan import Plan
from osculate.inputs import Inputs
from osculate.likelihoods import Likelihood
from osculate.parameters import Network


@dataclass(frozen=True, eq=False)
class Observation:
    """A batch.

    Attributes:
        network: the network at its mode.
        plan: its blocks.
        likelihood: p(y|f).
        kind: the kind of curvature.
        batch: inputs and targets of N data, on the network's device.
        memory: bytes that the temporaries of a pass may take.
        number: of the batch, for messages.
    """

    network: Network
    plan: Plan
    likelihood: Likelihood
    kind: Kind
    batch: tuple[Inputs, Tensor]
    memory: int
    number: int = 0

    @property
    def x(self) -> Inputs:
        """Inputs of N data."""
        return self.batch[0]

    @property
    def y(self) -> Tensor:
        """Their targets."""
        return self.batch[1]

    def pieces(self, by_factors: bool = False, row_size: int = 0) -> Iterator[Piece]:
        """The forms of all data for all columns of this kind of curvature, some at a time.

        Args:
            by_factors: whether the rows of a layer used at several positions are never formed, so that more fit.
            row_size: numbers of the whole rows that are formed of several layers together.
        """
        plan = (self.plan.by_factors() if by_factors else self.plan).with_rows(row_size)
        every = pieces(self.network, plan, self.x, self._columns, self.kind.expected(plan.outputs), self.memory)
        counted = self.likelihood.counted(self.y)
        if counted is None or bool(counted.all()):
            yield from every
            return
        for piece in every:
            forms = {n: form.marked() if isinstance(form, Outer) else form for n, form in piece.forms.items()}
            yield replace(piece, forms=forms)

    def _columns(self, f: Tensor, part: slice) -> Columns:
        self.check(f, self.y[part])
        return self.kind.columns(self.likelihood, f, self.y[part])

    def check(self, f: Tensor, y: Tensor) -> None:
        """Raise an error that says why, where outputs are not finite or targets do not fit them."""
        require_finite(f, f"the network's output for batch {self.number}")
        self.likelihood.check(f, y)
