"""The record of a forward pass: the operations that used a parameter, as described by their rules.

The pass runs under a :class:`Recorder`, which intercepts every torch operation. If an operation with a rule uses a
tracked parameter, the edge of its output in the autograd graph is kept, so that columns can be pulled back to it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from osculate.curvature.rules import RULES, Call, Use
from osculate.curvature.rules.sources import VIEWS, Function, Source, View
from osculate.differentiation import Elementary
from osculate.inputs import Inputs, needs_gradient, tensors
from osculate.operations import in_place, tensors_in
from osculate.parameters import Network


@dataclass(frozen=True)
class Example:
    """Shapes and sizes seen in a batch, with which later batches are compared.

    Attributes:
        shapes: Shapes of one datum's inputs, by name.
        sizes: Sizes of the outputs for a datum of the operations that use a parameter, by parameter.
    """

    shapes: Mapping[str, Sequence[int]]
    sizes: Mapping[str, Sequence[float]]


@dataclass
class Tape:
    """One recorded forward pass: outputs, parameters, and their uses with the sizes of their outputs.

    Attributes:
        f: Outputs.
        theta: The tracked parameters by name.
        uses: Their uses, with the edges and the sizes of the outputs.
        uncovered: Parameters used by an operation without a rule.
        touches: Names of the parameters that an operation used and nodes of its outputs, operation by operation.
        graph: True if what is made of the record keeps its graph, for derivatives by the inputs.
    """

    f: Tensor
    theta: dict[str, Tensor]
    uses: list[tuple[Use, GradientEdge, int]]
    uncovered: set[str]
    touches: list[tuple[set[str], list[Node]]]
    graph: bool = False

    def example(self, x: Inputs) -> Example:
        """The shapes of the inputs, and the output sizes for a datum of the operations that use each parameter."""
        found: dict[str, set[float]] = {}
        for use, _, size in self.uses:
            for name in use.names:
                found.setdefault(name, set()).add(size / len(self.f))
        shapes = {name: list(tensor.shape[1:]) for name, tensor in tensors(x).items()}
        return Example(shapes, {name: sorted(sizes) for name, sizes in found.items()})


class Recorder(TorchFunctionMode):
    """Intercepts the operations of a forward pass and applies the layer rules to those that use a parameter.

    Tensors that are made of parameters alone are followed: an operation that uses one uses its parameters.

    Args:
        graph: Keep the graph of the inputs of operations.

    Attributes:
        uses: The uses of parameters, with the edges and the sizes of the outputs.
        uncovered: Parameters used by an operation without a rule.
        touches: Names of the parameters that an operation used and nodes of its outputs, operation by operation.
    """

    def __init__(self, graph: bool = False) -> None:
        super().__init__()
        self._graph = graph
        self.uses: list[tuple[Use, GradientEdge, int]] = []
        self.uncovered: set[str] = set()
        self.touches: list[tuple[set[str], list[Node]]] = []
        self._theta: dict[str, Tensor] = {}
        self._known: dict[int, Source] = {}
        self._kept: list[Tensor] = []  # keeps the tensors alive, so that no id is reused
        self._constants: set[int] = set()

    def over(self, tracked: Sequence[str], module: nn.Module) -> "Recorder":
        """This recorder for a module: its other parameters and its buffers are constants for every datum.

        Args:
            tracked: Names of the tracked parameters.
            module: Module of the call.
        """
        self._theta = {name: module.get_parameter(name) for name in tracked}
        self._known = {id(t): View((name,), t.shape, lambda entries: entries, True) for name, t in self._theta.items()}
        self._kept += [*module.buffers(), *module.parameters()]
        self._constants |= {id(tensor) for tensor in self._kept} - self._known.keys()
        return self

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        """Run the operation, then record which parameters it used, and how."""
        kwargs = kwargs or {}
        rule = RULES.get(func)
        if rule is not None and rule.parts is not None:
            with self:
                output = rule.parts(*args, **kwargs)
            if output is not NotImplemented:
                return output
        output = func(*args, **kwargs)
        if isinstance(output, int | torch.Size | torch.dtype | torch.device):  # an attribute: nothing to follow
            return output
        touched = self._follow(func, args, kwargs, output)
        if not touched:
            return output
        use = None
        self.touches.append((touched, [t.grad_fn for t in tensors_in((output,)) if t.grad_fn is not None]))
        if rule is not None and rule.rows is not None and isinstance(output, Tensor):
            with torch.set_grad_enabled(self._graph):
                use = rule.rows(Call(func, output, self._known, graph=self._graph), *args, **kwargs)
        if use is not None and isinstance(output, Tensor):
            self.uses.append((use, get_gradient_edge(output), output.numel()))
            touched = touched - set(use.names)
        self.uncovered |= touched
        return output

    def _follow(self, func: Callable, args: tuple, kwargs: dict, output: object) -> set[str]:
        """Record tensors that an operation made of parameters alone; return the parameters that it used on data."""
        made, writes = tensors_in((output,)), in_place(func)
        if not made and not writes:  # a shape, a number: nothing to follow
            return set()
        leaves = tensors_in((*args, *kwargs.values()))
        mine = [self._known[id(leaf)] for leaf in leaves if id(leaf) in self._known]
        if leaves and writes:
            self._constants.discard(id(leaves[0]))
            self._known.pop(id(leaves[0]), None)
            if not leaves[0].requires_grad:
                return set()
        elif not mine:
            # functions of constants, and positions such as torch.arange(T), are constants; other new tensors count as
            # data: the zeros from which a recurrent network starts, for example, have a batch axis
            if all(id(leaf) in self._constants for leaf in leaves):
                constants = [t for t in made if leaves or t.dtype in (torch.int64, torch.int32)]
                self._kept += constants
                self._constants.update(map(id, constants))
        else:
            made = [tensor for tensor in made if tensor.requires_grad]
            if all(id(t) in self._known for t in made):  # not differentiable, or not new
                return set()
            if all(id(leaf) in self._known or id(leaf) in self._constants for leaf in leaves):
                self._follow_parameters(func, args, kwargs, mine, made)
                return set()
        return {name for source in mine for name in source.names}

    def _follow_parameters(
        self, func: Callable, args: tuple, kwargs: dict, mine: list[Source], made: list[Tensor]
    ) -> None:
        first = mine[0]
        as_view = len(mine) == 1 and isinstance(first, View) and _picks(func, *args, **kwargs)
        names = dict.fromkeys(name for source in mine for name in source.names)
        for number, tensor in enumerate(made):
            if as_view and isinstance(first, View):
                take = partial(_taken, self._known, func, args, kwargs, number)  # without the uses: no cycle
                whole = first.whole and tensor.numel() == first.shape.numel()
                source: Source = View(first.names, first.shape, take, whole)
            else:
                source = Function(tensor, {name: self._theta[name] for name in names})
            self._kept.append(tensor)
            self._known[id(tensor)] = source


def _taken(
    known: Mapping[int, Source], func: Callable, args: tuple, kwargs: dict, number: int, entries: Tensor
) -> Tensor:
    """The view of a parameter's entries that an operation returns."""

    def replaced(leaf: Any) -> Any:
        source = known.get(id(leaf))
        if isinstance(source, View):
            return source.take(entries)
        return leaf.to(entries.device) if isinstance(leaf, Tensor) else leaf

    args, kwargs = tree_map(replaced, (args, kwargs))
    return tree_leaves(func(*args, **kwargs))[number]


def _picks(func: Callable, *args: Any, padding_idx: int | None = None, max_norm: float | None = None, **_: Any) -> bool:
    """True if an operation only picks or reorders entries; a lookup does, unless it has a padding row or a norm."""
    if func is not F.embedding:
        return func in VIEWS
    return padding_idx is None and max_norm is None and args[2:4] in ((), (None,), (None, None))


def record(network: Network, x: Inputs) -> Tape:
    """The record of a forward pass at the mode, with its graph where derivatives by the inputs are asked for."""
    graph = needs_gradient(x)
    with torch.inference_mode(False), torch.enable_grad():
        recorder = Recorder(graph)
        with Elementary() if graph else nullcontext():
            f, theta = network.at_leaves(x, partial(recorder.over, network.space.names))
    if not f.requires_grad:
        raise ValueError(
            "the network's output does not depend on any tracked parameter "
            f"({', '.join(theta)}): pass names of parameters that it uses as subset."
        )
    return Tape(f, theta, recorder.uses, recorder.uncovered, recorder.touches, graph)
