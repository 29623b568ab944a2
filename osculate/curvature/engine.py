"""One pass over a batch: record what each parameterised operation saw, pull columns back, hand on forms.

The forward pass runs under a :class:`Recorder` that looks at every torch operation. Where an operation with a rule
touches a tracked parameter, the edge of its output in the autograd graph is kept. One batched reverse pass then pulls
all columns of a root of the output Hessian back to these edges at once (no weight gradient is ever computed), and the
rules turn inputs and pulled-back columns into forms.

A :class:`Plan`, made and verified once on the first batch, says which parameters form a block and which need the
fallback: per-datum vector-Jacobian products, slower and never wrong.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from osculate.curvature.columns import Columns
from osculate.curvature.fallback import fallback_forms
from osculate.curvature.forms import AnyForm, Dense, Form, Outer, Unit, concatenate
from osculate.curvature.layers import REWRITES, RULES, Call, Sources, Use
from osculate.curvature.plan import BlockSpec, Example, Plan
from osculate.curvature.pullback import pull
from osculate.inputs import Inputs, apply, count, take, tensors
from osculate.memory import even_parts
from osculate.parameters import Network


@dataclass
class Tape:
    """One recorded forward pass: outputs, parameters, and their uses with the size of what each returned."""

    f: Tensor
    theta: dict[str, Tensor]
    uses: list[tuple[Use, GradientEdge, int]]
    uncovered: set[str]
    last: set[str]

    def example(self, x: Inputs) -> Example:
        """The shapes of the inputs, and by parameter how much the operations that use it return for a datum."""
        found: dict[str, set[float]] = {}
        for use, _, size in self.uses:
            for name in use.names:
                found.setdefault(name, set()).add(size / len(self.f))
        shapes = {name: list(tensor.shape[1:]) for name, tensor in tensors(x).items()}
        return Example(shapes, {name: sorted(sizes) for name, sizes in found.items()})


class Recorder(TorchFunctionMode):
    """Watches the operations of a forward pass and applies the layer rules to those that touch a parameter."""

    def __init__(self, theta: Mapping[str, Tensor], constants: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self._sources = Sources(theta, constants)
        self.uses: list[tuple[Use, GradientEdge, int]] = []
        self.uncovered: set[str] = set()
        self.last: set[str] = set()

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        """Run the operation, then note which parameters it used and how."""
        kwargs = kwargs or {}
        if func in REWRITES:
            with self:
                output = REWRITES[func](*args, **kwargs)
            if output is not NotImplemented:
                return output
        output = func(*args, **kwargs)
        if touched := self._sources.follow(func, args, kwargs, output):
            self._note(func, output, touched, args, kwargs)
        return output

    def _note(self, func: Callable, output: object, touched: set[str], args: tuple, kwargs: dict) -> None:
        self.last, use = touched, None
        if func in RULES and isinstance(output, Tensor):
            with torch.no_grad():
                use = RULES[func](Call(self._sources, output), *args, **kwargs)
        if use is None or not isinstance(output, Tensor):
            self.uncovered |= touched
            return
        self.uses.append((use, get_gradient_edge(output), output.numel()))
        self.uncovered |= touched - set(use.names)


def record(network: Network, x: Inputs) -> Tape:
    """The forward pass at the mode, with what the rules noted."""
    with torch.inference_mode(False), torch.enable_grad():
        if any(tensor.is_inference() for tensor in tensors(x).values()):
            x = apply(torch.clone, x)
        theta = {name: p.requires_grad_() for name, p in network.parameters.items()}
        recorder = Recorder(theta, (*network.module.buffers(), *network.module.parameters()))
        with recorder:
            f = network(x, theta)
    if not f.requires_grad:
        raise ValueError(
            "the network's output does not depend on any tracked parameter "
            f"({', '.join(theta)}): nothing can be said about its uncertainty."
        )
    return Tape(f, theta, recorder.uses, recorder.uncovered, recorder.last)


@dataclass(frozen=True)
class Piece:
    """The forms of some data for some of their columns.

    Attributes:
        f: outputs (n, *C) of these data.
        first: whether these are the first columns of these data.
        last: whether they are the last.
        group: columns that belong together.
        forms: by the number of the block; a block that these data did not use has none.
    """

    f: Tensor
    first: bool
    last: bool
    group: int
    forms: Mapping[int, AnyForm]


def pieces(
    network: Network,
    plan: Plan,
    x: Inputs,
    columns: Callable[[Tensor, slice], Columns],
    expected: int,
    memory: int | None,
) -> Iterator[Piece]:
    """The forms of a batch, as many data and columns at a time as the memory allows.

    Args:
        network: the network.
        plan: from :func:`make_plan` on the same network.
        x: inputs of N data.
        columns: takes the outputs f (n, *C) of some data, and which they are, to their columns.
        expected: about how many columns there will be.
        memory: bytes that the temporaries may take; None for everything at once.

    Cost: one forward pass and one backward pass for each column, without weight gradients.
    """
    for part in even_parts(count(x), plan.data_at_once(expected, memory, network.state_dtype.itemsize)):
        yield from _pieces_of(network, plan, take(x, part), partial(_columns_of, columns, part), memory)


def _columns_of(columns: Callable[[Tensor, slice], Columns], part: slice, f: Tensor) -> Columns:
    return columns(f, part)


def _pieces_of(
    network: Network, plan: Plan, x: Inputs, columns: Callable[[Tensor], Columns], memory: int | None
) -> Iterator[Piece]:
    tape = record(network, x)
    plan.require_same_rows(tape.example(x))
    f = tape.f.detach().to(network.state_dtype)
    every = columns(f)
    if every.identity and (unit := _last_layer(network, plan, tape)) is not None:
        yield Piece(f, True, True, every.group, {0: unit})
        return
    step = plan.columns_at_once(len(f), memory, f.itemsize)
    step = every.count if step >= every.count else max(1, step // every.group) * every.group
    for start in range(0, every.count, step):
        stop = min(every.count, start + step)
        found = _forms(network, plan, tape, x, every.part(start, stop))
        if start:
            found = {n: replace(form, fresh=False) if isinstance(form, Outer) else form for n, form in found.items()}
        yield Piece(f, start == 0, stop == every.count, every.group, found)


def _last_layer(network: Network, plan: Plan, tape: Tape) -> Unit | None:
    """The closed form, where the only block is the affine layer whose outputs are those of the network."""
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
    if strangers := tape.uncovered & by_rule:
        raise ValueError(
            f"the network used {', '.join(sorted(strangers))} in another way than on the first batch. "
            "Put inputs that take every path of its control flow into the first batch."
        )
    size, cotangents = len(tape.f), columns.to(tape.f.dtype)
    uses = [(use, edge) for use, edge, _ in tape.uses if set(use.names) <= by_rule]
    pulled = pull(tape.f, [edge for _, edge in uses], cotangents)
    found: dict[int, list[tuple[Use, Form]]] = {}
    owner = {name: number for number, block in enumerate(plan.blocks) for name in block.names}
    for (use, _), g in zip(uses, pulled, strict=True):
        if g is not None:
            form = in_state_dtype(use.form(g).per_sample(size), network.state_dtype)
            found.setdefault(owner[use.names[0]], []).append((use, form))
    result = {number: _combine(plan.blocks[number], members, network) for number, members in found.items()}
    fallback = [number for number, block in enumerate(plan.blocks) if block.kind == "fallback"]
    if fallback:
        names = [plan.blocks[number].names[0] for number in fallback]
        rows = fallback_forms(network, names, x, cotangents)
        rows = [in_state_dtype(form, network.state_dtype) for form in rows]
        result.update(zip(fallback, rows, strict=True))
    return {number: _kept(plan.blocks[number], form, network.device) for number, form in sorted(result.items())}


def _kept(block: BlockSpec, form: Form, device: torch.device) -> Form:
    return form if block.kept is None else Dense(form.entries(block.kept.to(device)))


def in_state_dtype(form: Form, dtype: torch.dtype) -> Form:
    """The form of a network in half precision in the type that sums over data are kept in."""
    if isinstance(form, Dense):
        return form if form.j.dtype == dtype else Dense(form.j.to(dtype))
    if form.g.dtype == dtype:
        return form
    return replace(form, inputs=lambda: form.inputs().to(dtype), g=form.g.to(dtype))


def _combine(block: BlockSpec, members: list[tuple[Use, Form]], network: Network) -> Form:
    """The uses of one block as one form: positions concatenated, or rows added."""
    members_forms = [form for _, form in members]
    if block.kind in ("outer", "lookup"):
        outers = [form for form in members_forms if isinstance(form, Outer)]
        return outers[0] if len(outers) == 1 else concatenate(outers)
    first = members_forms[0].rows()
    total = first.new_zeros(*first.shape[:2], block.size, dtype=network.state_dtype)
    positions = network.space.positions()
    for use, form in members:
        local = torch.searchsorted(block.positions.cpu(), use.arrange(positions).reshape(-1))
        total.index_add_(2, local.to(total.device), form.rows().to(total))  # autocast makes rows in half precision
    return Dense(total)
