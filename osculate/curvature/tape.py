"""The record of a forward pass: the operations that used a parameter, and what their rules noted.

The pass runs under a :class:`Recorder`, which looks at every torch operation. Where an operation with a rule touches a
tracked parameter, the edge of its output in the autograd graph is kept, so that columns can be pulled back to it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from osculate.curvature.rules import RULES, Call, Sources, Use
from osculate.inputs import Inputs, apply, tensors
from osculate.parameters import Network


@dataclass(frozen=True)
class Example:
    """Shapes and sizes seen in a batch, with which later batches are compared.

    Attributes:
        shapes: shapes of one datum's inputs, by name.
        sizes: numbers that the operations using a parameter return for a datum, by parameter.
    """

    shapes: Mapping[str, Sequence[int]]
    sizes: Mapping[str, Sequence[float]]


@dataclass
class Tape:
    """One recorded forward pass: outputs, parameters, and their uses with the size of what each returned."""

    f: Tensor
    theta: dict[str, Tensor]
    uses: list[tuple[Use, GradientEdge, int]]
    uncovered: set[str]
    last: set[str]

    def example(self, x: Inputs) -> Example:
        """The shapes of the inputs, and the sizes of what the operations that use each parameter return for a datum."""
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
        """Run the operation, then note which parameters it used, and in which way."""
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
        touched = self._sources.follow(func, args, kwargs, output)
        if not touched:
            return output
        self.last, use = touched, None
        if rule is not None and rule.rows is not None and isinstance(output, Tensor):
            with torch.no_grad():
                use = rule.rows(Call(func, output, self._sources.known), *args, **kwargs)
        if use is not None and isinstance(output, Tensor):
            self.uses.append((use, get_gradient_edge(output), output.numel()))
            touched = touched - set(use.names)
        self.uncovered |= touched
        return output


def record(network: Network, x: Inputs) -> Tape:
    """The forward pass at the mode, with what the rules noted."""
    with torch.inference_mode(False), torch.enable_grad():
        if any(tensor.is_inference() for tensor in tensors(x).values()):
            x = apply(torch.clone, x)
        theta = {name: p.requires_grad_() for name, p in network.parameters.items()}
        recorder = Recorder(theta, (*network.module.buffers(), *network.module.parameters()))
        f = network(x, theta, within=recorder)
    if not f.requires_grad:
        raise ValueError(
            "the network's output does not depend on any tracked parameter "
            f"({', '.join(theta)}): nothing can be said about its uncertainty."
        )
    return Tape(f, theta, recorder.uses, recorder.uncovered, recorder.last)
