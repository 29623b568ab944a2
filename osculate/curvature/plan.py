"""The blocks of parameters of a network, and the memory of a datum: determined and verified once, on the first batch.

Every rule is verified. Its result for a random column on one datum is compared with autograd's gradient; a
parameter whose rule gives something else (an axis that is not the batch, an operation that escaped the recorder)
goes to the fallback. A network whose output for one input is random, or depends on the others, is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from osculate.curvature.columns import pull
from osculate.curvature.forms import Form, Lookup, Outer
from osculate.curvature.rules import Use
from osculate.curvature.tape import Example, Tape, record
from osculate.curvature.trace import Alone, pass_alone
from osculate.inputs import Inputs, apply, concatenate, count, take
from osculate.memory import readable
from osculate.operations import nodes_behind
from osculate.parameters import Network

#: Largest number of columns that are pulled back at once: more are no faster.
COLUMNS = 128
EVERYTHING = 2**62
#: Largest number of data on which a plan is made.
FIRST = 16


@dataclass(frozen=True)
class BlockSpec:
    """Parameters that a structure may treat together.

    Attributes:
        names: The tracked parameters.
        kind: "outer" (affine operation), "lookup" (one of one-hot vectors: an embedding), "dense" (rows), or
            "fallback" (rows from vector-Jacobian products).
        positions: Index in θ of each entry of the block's forms: (G, O, I) for the first two, (p,) otherwise.
        has_bias: True if the last input feature is the constant one of a bias.
        kept: Indices of the entries that a subnetwork keeps, None for all.
    """

    names: tuple[str, ...]
    kind: str
    positions: Tensor
    has_bias: bool = False
    kept: Tensor | None = None

    @property
    def size(self) -> int:
        """p, the number of parameters of the block."""
        return self.positions.numel()


@dataclass(frozen=True)
class Plan:
    """The partition of the tracked parameters into blocks, and the memory of a datum.

    Attributes:
        blocks: The blocks, in the order of ``named_parameters()``.
        floats: Floats held for each column and datum while forms are made.
        factored: The same for a structure that never forms the rows of a layer used at several positions.
        inputs: Floats held for each datum, independent of the number of columns.
        outputs: c, the number of outputs of a datum.
        last_layer: The parameters of the last operation before the outputs, empty where it is not an affine layer.
        example: Shapes and sizes of the first batch.
    """

    blocks: tuple[BlockSpec, ...]
    floats: int
    factored: int
    inputs: int
    outputs: int
    last_layer: tuple[str, ...]
    example: Example

    @property
    def specs(self) -> tuple[BlockSpec, ...]:
        """The blocks for structures: in a subnetwork the entries that are kept, as dense blocks."""
        return tuple(
            b if b.kept is None else BlockSpec(b.names, "dense", b.positions.reshape(-1)[b.kept]) for b in self.blocks
        )

    def restricted(self, wanted: Tensor) -> "Plan":
        """The plan of a subnetwork, whose parameters are given by a mask (P,)."""
        kept = [wanted[block.positions.reshape(-1)].nonzero().squeeze(-1) for block in self.blocks]
        blocks = tuple(replace(b, kept=entries) for b, entries in zip(self.blocks, kept, strict=True) if len(entries))
        floats = self.factored + sum(map(len, kept))
        return replace(self, blocks=blocks, floats=floats, factored=floats)

    def require_same_rows(self, seen: Example) -> None:
        """Raise ValueError if inputs of the same shape give a layer another number of rows than in the first batch.

        Raises:
            ValueError: rows would be attributed to the wrong datum.
        """
        if seen.shapes != self.example.shapes:
            return
        for name in (name for block in self.blocks if block.kind != "fallback" for name in block.names):
            sizes = seen.sizes.get(name, [])
            if not set(sizes) <= set(self.example.sizes.get(name, sizes)):
                raise ValueError(
                    f"the layer of {name} worked on another number of rows for each datum than in the first batch, for "
                    "inputs of the same shape: rows are picked by their values (a mask, a routing to experts). Put "
                    "such inputs into the first batch, so that this layer is treated without assumptions."
                )

    def for_structure(self, by_factors: bool = False, row_size: int = 0) -> "Plan":
        """The plan for a structure.

        Args:
            by_factors: True if it never forms the rows of a layer used at several positions.
            row_size: Length of the whole rows that it forms, and copies in double precision.
        """
        return replace(self, floats=(self.factored if by_factors else self.floats) + 3 * row_size)

    def bytes_each(self, columns: int, itemsize: int = 4) -> int:
        """Bytes that a datum takes with this number of columns."""
        return 2 * itemsize * (min(max(1, columns), COLUMNS) * self.floats + self.inputs)

    def require_room(self, memory: int | float, itemsize: int = 4, share: float = 1.0) -> None:
        """Raise ValueError if one datum with one column does not fit into this share of the memory.

        Raises:
            ValueError: the message names the amount that is needed.
        """
        needed = self.bytes_each(1, itemsize) / share
        if needed > memory:
            raise ValueError(
                f"one datum of this network takes about {readable(needed)} at a time, and memory allows "
                f"{readable(memory)}: raise memory, or track fewer parameters with subset (names of layers)."
            )

    def data_at_once(self, columns: int, memory: int | None, itemsize: int = 4) -> int:
        """The number of data that fit into the memory with this number of columns, at least one."""
        if memory is None:
            return EVERYTHING
        return max(1, memory // self.bytes_each(columns, itemsize))

    def columns_at_once(self, data: int, memory: int | None, itemsize: int = 4) -> int:
        """The number of columns that fit into the memory for this number of data, at least one."""
        if memory is None:
            return EVERYTHING
        left = memory // (2 * itemsize * max(1, data)) - self.inputs
        return max(1, min(COLUMNS, left // self.floats))


@dataclass(frozen=True, eq=False)
class _Trial:
    """A use and what its rule made of the random column.

    Attributes:
        use: The use.
        form: None where its axes cannot be read.
        entries: Indices in θ of the form's entries.
        edge: The edge of its output in the graph.
        merged: True if the first axis of its output is not that of the data.
    """

    use: Use
    form: Form | None
    entries: Tensor
    edge: GradientEdge
    merged: bool


def make_plan(network: Network, x: Inputs, alone: Alone | None = None) -> Plan:
    """The blocks of a network, found and verified on these inputs.

    Args:
        network: The network.
        x: A batch of inputs; at most the first 16 are used.
        alone: The pass of the first of them, where it was made already.

    Raises:
        ValueError: the output is random, or depends on the other inputs of the batch, or activations are recomputed.

    Cost: two forward passes and one backward pass without weight gradients over at most 16 inputs, and a forward and a
    backward pass of one.
    """
    alone = alone or pass_alone(network, x)
    if count(x) == 1:  # a second, different datum: with two equal ones a dependence between data would not show
        x = concatenate([x, apply(lambda tensor: tensor / 2 if tensor.is_floating_point() else tensor, x)])
    x = take(x, slice(FIRST))
    tape = record(network, x)
    _require_a_function(network, x, tape.f.detach(), alone.f.detach())
    positions = network.space.positions()
    column = torch.zeros_like(tape.f)  # random on the first datum, zero on all others
    column[0] = torch.randn(tape.f[0].shape, generator=torch.Generator().manual_seed(0)).to(tape.f)
    pulled = pull(tape.f, [edge for _, edge, _ in tape.uses], column.unsqueeze(0))
    trials = []
    for (use, edge, _), g in zip(tape.uses, pulled, strict=True):
        merged = g is not None and g.shape[1] != len(tape.f)
        trials.append(_Trial(use, _readable(use, g, len(tape.f)), use.arrange(positions), edge, merged))
    wrong = tape.uncovered | _ragged(tape, trials) | _unfaithful(network, tape, trials, alone.gradients(column[:1]))
    wrong |= set(network.space.names) - {name for trial in trials for name in trial.use.names}
    while spread := {name for t in trials if wrong & set(t.use.names) for name in t.use.names} - wrong:
        wrong |= spread  # a rule covers all parameters of a use, or none
    good = [trial for trial in trials if not wrong & set(trial.use.names)]
    blocks = _blocks(network, good, positions)
    blocks += [BlockSpec((name,), "fallback", positions[name].reshape(-1)) for name in wrong]
    order = {name: number for number, name in enumerate(network.space.names)}
    blocks.sort(key=lambda block: min(order[name] for name in block.names))
    reached = set(nodes_behind([tape.f]))  # a network of several outputs may go on after the one that is f
    final = next((names for names, made in reversed(tape.touches) if not reached.isdisjoint(made)), set())
    last = [t.use.names for t in good if isinstance(t.form, Outer) and set(t.use.names) >= final]
    outer = last[-1] if last else ()
    return Plan(tuple(blocks), *_sizes(tape, good, blocks), tape.f[0].numel(), outer, tape.example(x))


def _require_a_function(network: Network, x: Inputs, f: Tensor, alone: Tensor) -> None:
    """Raise ValueError if the outputs f are random, or the first is another one where it is computed alone."""
    with torch.no_grad():
        again = network(x)
        scale = again.abs().max() + torch.finfo(again.dtype).tiny
        random = bool((f - again).abs().max() / scale > 1e-4)
        if random:  # or kernels without a graph round in another way
            random = bool((network(x) - again).abs().max() / scale > 1e-4)
    if random:
        raise ValueError(
            "the network gives another output for the same input when it is called again: an active dropout, or "
            "noise in its forward pass. Call model.eval() first, or take the randomness out."
        )
    if bool(((alone - again[:1]).abs().max() / scale) > max(1e-2, 16 * network.eps)):
        raise ValueError(
            "the output for one input depends on the other inputs of its batch (a normalisation over the batch in "
            "training mode, or attention across it): per-datum curvature is not defined. Call model.eval() first."
        )


def _ragged(tape: Tape, trials: list[_Trial]) -> set[str]:
    """The parameters used on rows that do not stand in equal portions, datum after datum, where axes are merged."""
    n = len(tape.f)
    merged = [trial for trial in trials if trial.form is not None and trial.merged]
    if not merged:
        return set()
    second = (torch.arange(n, device=tape.f.device) % 2).to(tape.f).reshape(-1, *[1] * (tape.f.ndim - 1))
    column = torch.randn(tape.f.shape, generator=torch.Generator().manual_seed(1)).to(tape.f)
    columns = torch.stack([column * (1 - second), column * second])  # rows of a neighbour show in one of the two
    wrong: set[str] = set()
    for trial, g in zip(merged, pull(tape.f, [t.edge for t in merged], columns), strict=True):
        form = _readable(trial.use, g, n)
        if form is None or bool(_pulled(form)[0, 1::2].any()) or bool(_pulled(form)[1, 0::2].any()):
            wrong |= set(trial.use.names)
    return wrong


def _readable(use: Use, g: Tensor | None, count: int) -> Form | None:
    """The form of a use for this number of data; None if it has no axis of data."""
    if g is None:
        return None
    try:
        form = use.form(g)
        return form.per_sample(count) if _pulled(form).shape[1] % count == 0 else None
    except (RuntimeError, ValueError):
        return None


def _pulled(form: Form) -> Tensor:
    """The part of a form that depends on the columns, (V, N, …)."""
    return form.g if isinstance(form, Outer) else form.j


def _unfaithful(network: Network, tape: Tape, trials: list[_Trial], gradients: Mapping[str, Tensor | None]) -> set[str]:
    """The parameters whose rules disagree with autograd's gradients for the random column, (1, …) by name."""
    truth = [None if gradient is None else gradient[0] for gradient in gradients.values()]
    total = tape.f.detach().new_zeros(network.space.size, dtype=network.state_dtype)
    eps = max(network.eps, torch.finfo(tape.f.dtype).eps)  # that of the output is coarser under autocast
    tolerance, floor = eps**0.5, 100 * eps * max(float(t.abs().max()) for t in truth if t is not None)
    wrong: set[str] = set()
    for trial in trials:
        if (form := trial.form) is None:
            wrong |= set(trial.use.names)
            continue
        pulled = _pulled(form)[0]
        if bool(pulled[1:].abs().max() > tolerance * pulled[0].abs().max() + floor):
            wrong |= set(trial.use.names)
        rows = form.first().rows()[0, 0].to(total.dtype)
        total.index_add_(0, trial.entries.reshape(-1).to(total.device), rows)
    sums = network.space.unflatten(total)
    for name, expected in zip(tape.theta, truth, strict=True):
        expected = torch.zeros_like(tape.theta[name]) if expected is None else expected
        if bool((sums[name] - expected).abs().max() > 10 * tolerance * expected.abs().max() + floor):
            wrong.add(name)
    return wrong


def _blocks(network: Network, trials: list[_Trial], positions: dict[str, Tensor]) -> list[BlockSpec]:
    """One block for each set of uses that share parameters."""
    groups: list[tuple[set[str], list[_Trial]]] = []
    for trial in trials:
        names = set(trial.use.names)
        touching = [group for group in groups if group[0] & names]
        merged = (names.union(*(g[0] for g in touching)), [m for g in touching for m in g[1]] + [trial])
        groups = [group for group in groups if group not in touching] + [merged]
    blocks = []
    for names, members in groups:
        first = members[0]
        affine = all(isinstance(t.form, Outer) for t in members)
        if affine and all(torch.equal(t.entries, first.entries) for t in members[1:]):
            kind = "lookup" if all(isinstance(t.form, Lookup) for t in members) else "outer"
            blocks.append(BlockSpec(first.use.names, kind, first.entries, len(first.use.names) > 1))
        else:
            ordered = tuple(name for name in network.space.names if name in names)
            blocks.append(BlockSpec(ordered, "dense", torch.cat([positions[name].reshape(-1) for name in ordered])))
    return blocks


def _sizes(tape: Tape, trials: list[_Trial], blocks: list[BlockSpec]) -> tuple[int, int, int]:
    """The sizes of a plan: floats, factored and inputs. Blocks are processed one after the other."""
    outputs = sum(size for _, _, size in tape.uses) // len(tape.f)
    repeated = {t.use.names[0]: t.form.shared for t in trials if isinstance(t.form, Outer) and t.form.shared > 1}
    dense = max((b.size for b in blocks if b.kind in ("dense", "fallback")), default=0)
    layers = [b for b in blocks if b.kind == "outer" and b.names[0] in repeated]  # lookups form no rows
    rows = max((b.size for b in layers), default=0)
    windows = max((repeated[b.names[0]] * b.positions.shape[-1] for b in layers), default=0)
    return max(1, outputs + max(dense, rows)), max(1, outputs + dense), outputs + windows
