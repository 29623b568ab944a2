"""One batch: columns pulled back to every parameterised operation at once, and returned as forms.

The forward pass is recorded (:mod:`tape`), one batched reverse pass pulls all columns of a root of the output Hessian
back to the recorded operations (no weight gradient is ever computed), and the rules turn inputs and pulled-back columns
into forms. A :class:`Plan`, made and verified once on the first batch, lists the parameters of each block, and those
that need the fallback: per-datum vector-Jacobian products, slower and never wrong.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from osculate.batches import require_finite
from osculate.curvature.columns import MANY, Columns, Kind, pull
from osculate.curvature.fallback import fallback_forms
from osculate.curvature.forms import AnyForm, Dense, Form, Outer, Unit, concatenate
from osculate.curvature.plan import BlockSpec, Plan
from osculate.curvature.rules import Use
from osculate.curvature.tape import Tape, record
from osculate.inputs import Inputs, count, take
from osculate.likelihoods import Likelihood
from osculate.memory import even_parts, give_back
from osculate.parameters import Network

#: Numbers in the columns of a pass that take about a minute of one core, and the factor of a GPU.
LONG, FASTER = 10**10, 50
#: Columns of a datum up to which a default computes them, and numbers in the columns of a pass: a few seconds.
AFFORDABLE, SHORT = 1_000, 10**9
#: What to do in place of a column for each output, in a prediction.
FEWER = (
    "Draw functions in place of columns (osc.predict(…, link='functions') or via='sampled', osc.sample_functions, "
    "osc.functional_variance(…, diagonal=True, via='samples')), or take fewer inputs at once."
)


@dataclass(frozen=True)
class Piece:
    """The forms of some data for some of their columns.

    Attributes:
        f: Outputs (n, *C) of these data.
        first: True for the first columns of these data.
        last: True for the last ones.
        group: Columns that belong together.
        identity: True if the columns of all pieces are the unit vectors of the outputs, in the order of the outputs.
        forms: The form of each block, by its index; a block that these data did not use has none.
    """

    f: Tensor
    first: bool
    last: bool
    group: int
    identity: bool
    forms: Mapping[int, AnyForm]


@dataclass(frozen=True, eq=False)
class Observation:
    """A batch.

    Attributes:
        network: The network at its mode.
        plan: The blocks of its parameters.
        likelihood: p(y|f).
        kind: The kind of curvature.
        batch: Inputs and targets of N data, on the network's device.
        memory: Bytes that the temporaries of a pass may take.
        number: Position of the batch in the pass, named in errors.
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

    def part(self, rows: slice | Tensor) -> "Observation":
        """Some of the data."""
        return replace(self, batch=(take(self.x, rows), self.y[rows]), kind=self.kind.part(rows))

    def columns(self, f: Float[Tensor, "n *C"], part: slice = slice(None)) -> Columns:
        """The columns of this kind of curvature.

        Args:
            f: Outputs of these data.
            part: Part of the batch.
        """
        return self.kind.part(part).columns(self.likelihood, f, self.y[part])

    def pieces(self, by_factors: bool = False, row_size: int = 0) -> Iterator[Piece]:
        """The forms of all data for all columns of this kind of curvature, in chunks.

        Args:
            by_factors: True if the rows of a layer used at several positions are never formed, so that more data fit.
            row_size: Length of the whole rows that are formed over several layers together.
        """
        x, y = self.batch

        def columns(f: Tensor, part: slice) -> Columns:
            self.check(f, y[part])
            return self.columns(f, part)

        plan, expected = self.plan.for_structure(by_factors, row_size), self.kind.expected(self.plan.outputs)
        self.require_few(len(y), plan)
        marks = self.likelihood.counted(y) is not None
        yield from pieces(self.network, plan, x, columns, expected, self.memory, marks, judged=True)

    def require_few(self, data: int, plan: Plan | None = None) -> None:
        """Raise ValueError if the columns of this number of data would take very long.

        Args:
            data: Number of data.
            plan: The plan of a structure; None for that of factors alone.
        """
        plan = plan or self.plan.for_structure(by_factors=True)
        expected = self.kind.expected(plan.outputs)
        require_few(expected, data, plan, self.network.device, self.kind.fewer(), self.kind.limit)

    @torch.no_grad()
    def outputs(self) -> Float[Tensor, "N *C"]:
        """f of all data at the mode, checked. Cost: one forward pass."""
        f = self.network(self.x).to(self.network.state_dtype)
        self.check(f, self.y)
        return f

    def check(self, f: Tensor, y: Tensor) -> None:
        """Raise an error if outputs are not finite or targets do not fit them."""
        require_finite(f, f"the network's output for batch {self.number}")
        self.likelihood.check(f, y)


def pieces(
    network: Network,
    plan: Plan,
    x: Inputs,
    columns: Callable[[Tensor, slice], Columns],
    expected: int,
    memory: int | None,
    marks: bool = False,
    judged: bool = False,
) -> Iterator[Piece]:
    """The forms of a batch, in chunks of data and columns that fit into the memory.

    Args:
        network: The network.
        plan: Plan of the same network, by :func:`make_plan`.
        x: Inputs of N data.
        columns: A function from the outputs f (n, *C) of some data, and their slice of the batch, to their columns.
        expected: Approximate number of columns.
        memory: Bytes that the temporaries may take; None for everything at once.
        marks: Mark the positions that some column depends on, see :class:`Outer`.
        judged: True if the caller has judged the number of columns.

    Raises:
        ValueError: there are very many columns for these data.

    Cost: one forward pass and one backward pass for each column, without weight gradients; marks of columns in several
    chunks take one more.
    """
    for part in even_parts(count(x), plan.data_at_once(expected, memory, network.state_dtype.itemsize)):
        yield from _pieces_of(network, plan, x, part, columns, memory, marks, judged)
        give_back()


def require_few(columns: int, data: int, plan: Plan, device: torch.device, way_out: str, limit: int = MANY) -> None:
    """Raise ValueError, before the work, if there are so many columns for these data that they would take very long.

    Args:
        columns: Number of columns of a datum.
        data: Number of data.
        plan: The plan, which knows how many numbers a column takes.
        device: Device of the pass.
        way_out: A sentence on what to do instead.
        limit: Number of columns that is never too many.

    Raises:
        ValueError: there are more columns, and more than 10¹⁰ numbers in all, or 50 times as many on a GPU.
    """
    if are_many(columns, data, plan, device, limit):
        raise ValueError(
            f"{columns:,} backward passes for each of {data:,} data, with {_numbers(columns, data, plan):.1e} numbers "
            f"in all, would take very long. {way_out}"
        )


def are_many(columns: int, data: int, plan: Plan, device: torch.device, limit: int = MANY) -> bool:
    """True if so many columns for these data would take very long, see :func:`require_few`."""
    return columns > limit and _numbers(columns, data, plan) > LONG * (1 if device.type == "cpu" else FASTER)


def are_costly(columns: int, data: int, plan: Plan, device: torch.device) -> bool:
    """True if a default has to take another way than so many columns: counted, so that all machines decide alike."""
    return columns > AFFORDABLE and _numbers(columns, data, plan) > SHORT * (1 if device.type == "cpu" else FASTER)


def _numbers(columns: int, data: int, plan: Plan) -> float:
    return float(columns) * data * (plan.outputs + plan.floats)


def _pieces_of(
    network: Network,
    plan: Plan,
    x: Inputs,
    part: slice,
    columns: Callable[[Tensor, slice], Columns],
    memory: int | None,
    marks: bool,
    judged: bool,
) -> Iterator[Piece]:
    """The forms of data that pass through the network together; the graph of their pass ends with this generator."""
    total, x = count(x), take(x, part)
    tape = record(network, x)
    plan.require_same_rows(tape.example(x))
    f = (tape.f if tape.graph else tape.f.detach()).to(network.state_dtype)
    every = columns(f, part)
    if every.identity and (unit := _last_layer(network, plan, tape)) is not None:
        yield Piece(f, True, True, every.group, True, {0: unit})
        return
    if not judged:
        require_few(every.count, total, plan, network.device, FEWER)
    step = plan.columns_at_once(len(f), memory, f.itemsize)
    step = every.count if step >= every.count else max(1, step // every.group) * every.group
    used: dict[int, Tensor] = {}
    if marks and step < every.count:  # a position is used by any column, and its inputs are read with the first ones
        used = _reached(_forms(network, plan, tape, x, every.mixed(step)))
    for start in range(0, every.count, step):
        stop = min(every.count, start + step)
        forms = _forms(network, plan, tape, x, every.part(start, stop))
        reached = used or _reached(forms) if marks else {}
        for n, form in forms.items():
            if isinstance(form, Outer):
                forms[n] = replace(form, used=reached.get(n), fresh=start == 0)
        yield Piece(f, start == 0, stop == every.count, every.group, every.identity, forms)
        del forms  # before the next ones are made


def _reached(forms: Mapping[int, Form]) -> dict[int, Tensor]:
    """The positions of each layer that some column depends on."""
    return {n: form.reached() for n, form in forms.items() if isinstance(form, Outer)}


def _last_layer(network: Network, plan: Plan, tape: Tape) -> Unit | None:
    """The closed form, if the only block is an affine layer whose outputs are those of the network."""
    if len(plan.blocks) != 1 or plan.blocks[0].kind != "outer" or plan.blocks[0].kept is not None or tape.f.ndim != 2:
        return None
    uses = [(use, edge) for use, edge, _ in tape.uses if set(use.names) <= set(plan.blocks[0].names)]
    end = get_gradient_edge(tape.f)
    if tape.uncovered or len(uses) != 1 or uses[0][1].node is not end.node:
        return None
    form = in_state_dtype(uses[0][0].form(torch.zeros_like(tape.f).unsqueeze(0)), network.state_dtype)
    if not isinstance(form, Outer) or form.g.shape[2:4] != (1, 1):
        return None
    return Unit(form.inputs, tape.f.shape[1])


def _forms(network: Network, plan: Plan, tape: Tape, x: Inputs, columns: Tensor) -> dict[int, Form]:
    by_rule = {name for block in plan.blocks if block.kind != "fallback" for name in block.names}
    if changed := tape.uncovered & by_rule:
        raise ValueError(
            f"the network used {', '.join(sorted(changed))} in another way than on the first batch. "
            "Put inputs that take every path of its control flow into the first batch."
        )
    cotangents = columns.to(tape.f.dtype)
    uses = [(use, edge) for use, edge, _ in tape.uses if set(use.names) <= by_rule]
    pulled = pull(tape.f, [edge for _, edge in uses], cotangents, tape.graph)
    result = forms_of(network, plan, [(use, g) for (use, _), g in zip(uses, pulled, strict=True)], len(tape.f))
    fallback = [number for number, block in enumerate(plan.blocks) if block.kind == "fallback"]
    if fallback:
        names = [plan.blocks[number].names[0] for number in fallback]
        rows = fallback_forms(network, names, x, cotangents, tape.graph)
        rows = [in_state_dtype(form, network.state_dtype) for form in rows]
        result.update(zip(fallback, rows, strict=True))
        result = {n: _kept(form, plan.blocks[n], network) if n in fallback else form for n, form in result.items()}
    return dict(sorted(result.items()))


def forms_of(network: Network, plan: Plan, pulled: Sequence[tuple[Use, Tensor | None]], size: int) -> dict[int, Form]:
    """The form of each block that the uses belong to, by its index.

    Args:
        network: The network.
        plan: The plan of the network.
        pulled: Uses of parameters by rule, each with the columns (V, N, *output) pulled back to it, if any.
        size: N.
    """
    found: dict[int, list[tuple[Use, Form]]] = {}
    owner = {name: number for number, block in enumerate(plan.blocks) for name in block.names}
    for use, g in pulled:
        if g is not None:
            form = in_state_dtype(use.form(g).per_sample(size), network.state_dtype)
            found.setdefault(owner[use.names[0]], []).append((use, form))
    blocks = {number: plan.blocks[number] for number in found}
    return {n: _kept(_combine(blocks[n], members, network), blocks[n], network) for n, members in found.items()}


def _kept(form: Form, block: BlockSpec, network: Network) -> Form:
    """The entries that a subnetwork keeps, or the form as it is."""
    return form if block.kept is None else Dense(form.entries(block.kept.to(network.device)))


def in_state_dtype(form: Form, dtype: torch.dtype) -> Form:
    """A form of a network in half precision, in the type of the sums over data."""
    if isinstance(form, Dense):
        return form if form.j.dtype == dtype else Dense(form.j.to(dtype))
    if form.g.dtype == dtype:
        return form
    return replace(form, inputs=lambda: form.inputs().to(dtype), g=form.g.to(dtype))


def _combine(block: BlockSpec, members: list[tuple[Use, Form]], network: Network) -> Form:
    """The uses of one block as one form: positions concatenated, or rows added."""
    if block.kind in ("outer", "lookup"):
        outers = [form for _, form in members if isinstance(form, Outer)]
        return outers[0] if len(outers) == 1 else concatenate(outers)
    first = members[0][1].rows()
    total = first.new_zeros(*first.shape[:2], block.size, dtype=network.state_dtype)
    positions = network.space.positions(block.names)  # of all parameters they take longer than the backward pass
    for use, form in members:
        local = torch.searchsorted(block.positions.cpu(), use.arrange(positions).reshape(-1))
        total.index_add_(2, local.to(total.device), form.rows().to(total))  # rows under autocast are in half precision
    return Dense(total)
