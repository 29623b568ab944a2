"""One pass over a batch: record what each parameterised operation saw, pull columns back, hand on forms.

The forward pass runs under a :class:`Recorder` that looks at every torch operation. Where an operation with a rule
touches a tracked parameter, the edge of its output in the autograd graph is kept. One batched reverse pass then pulls
all columns of a root of the output Hessian back to these edges at once (no weight gradient is ever computed), and the
rules turn inputs and pulled-back columns into forms.

A :class:`Plan`, made and verified once on the first batch, says which parameters form a block and which need the
fallback: per-datum vector-Jacobian products, slower and never wrong.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from osculate.curvature.forms import Dense, Form, Outer, concatenate
from osculate.curvature.layers import RULES, Call, Use
from osculate.parameters import Network, ParameterSpace

#: Bytes that the pulled-back columns of one chunk may take.
MEMORY = 2**28


@dataclass(frozen=True)
class Block:
    """Parameters that a structure may treat together.

    Attributes:
        names: the tracked parameters.
        kind: "outer" (affine operation), "dense" (rows), or "fallback" (rows from vector-Jacobian products).
        positions: where each entry of the block's forms stands in θ: (G, O, I) for "outer", (p,) otherwise.
        has_bias: whether the last input feature is the constant one of a bias.
    """

    names: tuple[str, ...]
    kind: str
    positions: Tensor
    has_bias: bool = False

    @property
    def size(self) -> int:
        """p, the number of parameters of the block."""
        return self.positions.numel()


@dataclass(frozen=True)
class Plan:
    """The partition of the tracked parameters into blocks, and how much a datum takes.

    Attributes:
        blocks: in the order of ``named_parameters()``.
        floats: numbers held for each column and datum while forms are made.
        last_layer: the parameters of the operation that ran last, empty where it is not an affine layer.
    """

    blocks: tuple[Block, ...]
    floats: int
    last_layer: tuple[str, ...]

    def chunk(self, columns: int, itemsize: int = 4) -> int:
        """How many data fit into the memory budget with this number of columns."""
        return max(1, MEMORY // (2 * itemsize * max(1, columns) * self.floats))


@dataclass
class Tape:
    """One recorded forward pass."""

    f: Tensor
    theta: dict[str, Tensor]
    uses: list[tuple[Use, GradientEdge, int]]
    uncovered: set[str]
    last: set[str]


class Recorder(TorchFunctionMode):
    """Watches the operations of a forward pass and applies the layer rules to those that touch a parameter."""

    def __init__(self, theta: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._names = {id(tensor): name for name, tensor in theta.items()}
        self.uses: list[tuple[Use, GradientEdge, int]] = []
        self.uncovered: set[str] = set()
        self.last: set[str] = set()

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        """Run the operation, then note which parameters it used and how."""
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        touched = {self._names[id(leaf)] for leaf in tree_leaves((args, kwargs)) if id(leaf) in self._names}
        if touched and any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in tree_leaves(output)):
            self._note(func, output, touched, args, kwargs)
        return output

    def _note(self, func: Callable, output: object, touched: set[str], args: tuple, kwargs: dict) -> None:
        self.last, use = touched, None
        if func in RULES and isinstance(output, Tensor):
            with torch.no_grad():
                use = RULES[func](Call(self._names, output), *args, **kwargs)
        if use is None or not isinstance(output, Tensor):
            self.uncovered |= touched
            return
        self.uses.append((use, get_gradient_edge(output), output[0].numel() if output.ndim else 1))
        self.uncovered |= touched - set(use.names)


def record(network: Network, x: Tensor) -> Tape:
    """The forward pass at the mode, with what the rules noted."""
    with torch.inference_mode(False), torch.enable_grad():
        x = x.clone() if x.is_inference() else x
        theta = {name: p.requires_grad_() for name, p in network.parameters.items()}
        recorder = Recorder(theta)
        with recorder:
            f = network(x, theta)
    if not f.requires_grad:
        raise ValueError(
            "the network's output does not depend on any tracked parameter "
            f"({', '.join(theta)}): nothing can be said about its uncertainty."
        )
    return Tape(f, theta, recorder.uses, recorder.uncovered, recorder.last)


def pull(f: Tensor, inputs: list, columns: Tensor, retain_graph: bool = False) -> list[Tensor | None]:
    """∂(columns · f)/∂inputs for all columns (V, N, *C) at once: a list of (V, *input)."""
    if not inputs:
        return []
    if len(columns) > 1:
        try:
            return list(
                torch.autograd.grad(f, inputs, columns, is_grads_batched=True, allow_unused=True, retain_graph=True)
            )
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # an operation whose backward cannot be batched: one column at a time
            pass
    each = [torch.autograd.grad(f, inputs, c, allow_unused=True, retain_graph=True) for c in columns]
    return [None if parts[0] is None else torch.stack(parts) for parts in zip(*each, strict=True)]


def forms(
    network: Network, plan: Plan, x: Tensor, columns: Callable[[Tensor], Tensor]
) -> tuple[Tensor, dict[int, Form]]:
    """The outputs f(x) at the mode, and the form of each block for these columns.

    Args:
        network: the network.
        plan: from :func:`make_plan` on the same network.
        x: inputs (N, …).
        columns: takes f (N, *C) to columns (V, N, *C).

    Returns:
        f, and forms by the number of the block; a block that this batch did not use has none.

    Cost: one forward pass and one backward pass for each column, without weight gradients.
    """
    tape = record(network, x)
    f = tape.f.detach()
    cotangents = columns(f)
    by_rule = {name for block in plan.blocks if block.kind != "fallback" for name in block.names}
    if strangers := tape.uncovered & by_rule:
        raise ValueError(
            f"the network used {', '.join(sorted(strangers))} in another way than on the first batch. "
            "Put inputs that take every path of its control flow into the first batch."
        )
    uses = [(use, edge) for use, edge, _ in tape.uses if set(use.names) <= by_rule]
    pulled = pull(tape.f, [edge for _, edge in uses], cotangents)
    found: dict[int, list[tuple[Use, Form]]] = {}
    owner = {name: number for number, block in enumerate(plan.blocks) for name in block.names}
    for (use, _), g in zip(uses, pulled, strict=True):
        if g is not None:
            found.setdefault(owner[use.names[0]], []).append((use, use.form(g).per_sample(len(x))))
    result = {number: _combine(plan.blocks[number], members, network.space) for number, members in found.items()}
    fallback = [number for number, block in enumerate(plan.blocks) if block.kind == "fallback"]
    if fallback:
        names = [plan.blocks[number].names[0] for number in fallback]
        result.update(zip(fallback, _fallback_forms(network, names, x, cotangents), strict=True))
    return f, dict(sorted(result.items()))


def _combine(block: Block, members: list[tuple[Use, Form]], space: ParameterSpace) -> Form:
    """The uses of one block as one form: positions concatenated, or rows added."""
    members_forms = [form for _, form in members]
    if block.kind == "outer":
        outers = [form for form in members_forms if isinstance(form, Outer)]
        return outers[0] if len(outers) == 1 else concatenate(outers)
    first = members_forms[0].rows()
    total = first.new_zeros(*first.shape[:2], block.size)
    positions = space.positions()
    for use, form in members:
        local = torch.searchsorted(block.positions.cpu(), use.arrange(positions).reshape(-1))
        total.index_add_(2, local.to(total.device), form.rows())
    return Dense(total)


def _fallback_forms(network: Network, names: list[str], x: Tensor, cotangents: Tensor) -> list[Form]:
    rows: list[list[Tensor]] = []
    for n in range(len(x)):
        theta = {name: network.parameters[name].requires_grad_() for name in names}
        with torch.enable_grad():
            f = network(x[n : n + 1], theta)
        pulled = pull(f, list(theta.values()), cotangents[:, n : n + 1]) if f.requires_grad else [None] * len(names)
        zeros = [tensor.detach().new_zeros(len(cotangents), *tensor.shape) for tensor in theta.values()]
        rows.append([(z if g is None else g).reshape(len(z), -1) for g, z in zip(pulled, zeros, strict=True)])
    return [Dense(torch.stack(parts, 1)) for parts in zip(*rows, strict=True)]


def chunks(plan: Plan, count: int, columns: int, itemsize: int = 4) -> Iterator[slice]:
    """Slices of a batch of ``count`` data that each fit into the memory budget."""
    step = plan.chunk(columns, itemsize)
    for start in range(0, count, step):
        yield slice(start, start + step)
