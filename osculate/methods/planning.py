"""The cost of a fit and of predictions, in passes over the data and bytes, before the work."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from osculate import structures
from osculate.batches import Data, as_batches
from osculate.curvature.columns import GGN, Fisher, Kind
from osculate.curvature.engine import Observation
from osculate.memory import budget, readable
from osculate.methods._base import require_network, unwrapped
from osculate.methods.laplace import (
    affordable_kind,
    affordable_structure,
    expected_rows,
    kind_named,
    network_of,
    structure_named,
)
from osculate.methods.subnetwork import Subnetwork
from osculate.posteriors.fit import observe
from osculate.predictive.predict import FEW, SAMPLES
from osculate.structures import Structure

#: Units of a draw of a function: about three forward passes, of which a unit has three.
DRAW = 1.0


@dataclass(frozen=True)
class Cost:
    """The cost of one choice.

    Attributes:
        name: The choice.
        passes: Forward and backward passes over the data, or of a prediction for each input.
        bytes: Bytes of the posterior and its factors, with the temporaries of a pass.
        refusal: The sentence by which it is refused; empty where it is served.
    """

    name: str
    passes: float
    bytes: int
    refusal: str = ""


@dataclass(frozen=True)
class FitPlan:
    """The costs of a fit and of predictions, in units of one forward and backward pass; ``print`` shows a table.

    Attributes:
        fit: The fit that was asked for.
        fits: Fits with other structures, exact and with sampled labels.
        predictions: Ways to predict, for each input.
        outputs: Number of outputs of a datum.
        data: Number of data.
    """

    fit: Cost
    fits: tuple[Cost, ...]
    predictions: tuple[Cost, ...]
    outputs: int
    data: int

    @property
    def passes(self) -> float:
        """Passes over the data of the fit."""
        return self.fit.passes

    @property
    def bytes(self) -> int:
        """Bytes that the fit takes."""
        return self.fit.bytes

    def __str__(self) -> str:
        head = f"{self.data:,} data with {self.outputs:,} outputs; a unit is one forward and backward pass over them"
        rows = [f"{'fit':<34}{'units':>12}{'memory':>12}"]
        rows += [_row(cost, cost.name == self.fit.name) for cost in self.fits]
        rows += ["", f"{'prediction, for each input':<34}{'units':>12}"]
        rows += [_row(cost, False) for cost in self.predictions]
        return "\n".join([head, "", *rows])


def _row(cost: Cost, chosen: bool) -> str:
    memory = f"{readable(cost.bytes):>12}" if cost.bytes else ""
    remark = "  refused" if cost.refusal else "  <- this call" if chosen else ""
    return f"{cost.name:<34}{cost.passes:>12,.1f}{memory}{remark}"


def plan(
    model: nn.Module,
    likelihood: Any,
    data: Data,
    structure: str | Structure = "auto",
    curvature: str | Kind = "auto",
    subset: str | Iterable[str] | Subnetwork = "all",
    memory: str | int | None = None,
) -> FitPlan:
    """The cost of :func:`osculate.laplace` and of :func:`osculate.predict`, in counted passes and bytes.

    A column for each of C outputs takes a backward pass without weight gradients, half of a usual one. The counts
    depend on the network, the sizes of the data and the choices alone, not on the machine; what is refused depends on
    the free memory as well.

    Args:
        model: The trained module, in evaluation mode.
        likelihood: p(y|f).
        data: The training data, of which one batch is read.
        structure: A structure, as for :func:`osculate.laplace`; "auto" is what its default takes.
        curvature: A kind of curvature, as there.
        subset: A choice of parameters by name, as there.
        memory: Bytes that the fit may take, as there.

    Returns:
        The costs: ``passes`` and ``bytes`` of the fit, and a table of all choices as text. A refined posterior takes
        about twenty units more.

    Raises:
        ValueError: the data are empty, or do not fit the network or the likelihood.
        TypeError: a Subnetwork, which is chosen by the fit.

    Cost: a few passes over at most 16 data, once for a network.

    >>> import osculate as osc
    >>> X, Y = torch.randn(30, 2), torch.randint(3, (30,))
    >>> cost = osc.plan(nn.Linear(2, 3), osc.likelihoods.Categorical(), (X, Y), structure="diag", curvature="fisher")
    >>> round(cost.passes, 2)
    0.67
    """
    require_network(model, likelihood)
    model = unwrapped(model)
    if isinstance(subset, Subnetwork):
        raise TypeError("osc.plan takes names of parameters as a subset: a Subnetwork is chosen by the fit.")
    first = next(iter(as_batches(data)))
    size = expected_rows(data, first)
    start = observe(network_of(model, subset, first[0]), likelihood, kind_named(curvature), first, memory)
    matrix, _ = affordable_structure(start) if structure == "auto" else (structure_named(structure), "")
    kind = start.kind
    if curvature == "auto" and not matrix.by_products:
        kind, _ = affordable_kind(start, size)
    chosen = _fit(start, matrix, kind, size)
    others = [_fit(start, made(), k, size) for made in structures.REGISTRY.values() for k in (GGN(), Fisher())]
    found: Mapping[str, Cost] = {cost.name: cost for cost in (*others, chosen)}
    return FitPlan(chosen, tuple(found.values()), _predictions(start), start.plan.outputs, size)


def _fit(start: Observation, structure: Structure, kind: Kind, size: int) -> Cost:
    start, columns = replace(start, kind=kind), kind.expected(start.plan.outputs)
    itemsize, network = start.network.state_dtype.itemsize, start.network
    refusal = ""
    try:
        structure.require_room(start.plan.specs, network.state_dtype, network.device)
        structure.require_few(start, size)
    except ValueError as error:
        refusal = str(error)
    plan = start.plan.for_structure(structure.by_factors)
    temporaries = min(budget(None, network.device), size * plan.bytes_each(columns, itemsize))
    needed = structure.bytes_needed(start.plan.specs, itemsize) + temporaries
    return Cost(f"{structure.name}, {kind.name}", structure.units(columns), int(needed), refusal)


def _predictions(start: Observation) -> tuple[Cost, ...]:
    outputs = start.plan.outputs
    return (
        Cost("linearised, a column an output", (1 + outputs) / 3, 0),
        Cost(f"linearised, {FEW} functions", FEW * DRAW, 0),
        Cost(f"sampled, {SAMPLES} networks", SAMPLES / 3, 0),
    )
