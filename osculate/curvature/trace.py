"""The pass of one datum alone, and the operations that it did: networks with the same ones have the same plan."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count as numbers_from
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from osculate.curvature.columns import RECOMPUTES, pull
from osculate.curvature.linearisation import recording
from osculate.curvature.rules import words
from osculate.inputs import Inputs, apply, take
from osculate.operations import name_of, nodes_behind, tensors_in
from osculate.parameters import Network

#: Entries of a tensor that are compared, evenly spaced: all of a small one, at most twice as many of a large one.
PROBED = 1024
#: Operations whose Python value, shape or order of rows depends on the values of a tensor.
READING = words(
    "item tolist numpy __array__ __bool__ __int__ __float__ __complex__ __index__ __contains__ is_nonzero equal "
    "allclose nonzero argwhere masked_select masked_scatter unique unique_consecutive bincount repeat_interleave take "
    "gather take_along_dim index_select index_add index_copy index_put scatter scatter_add sort argsort msort topk "
    "kthvalue searchsorted bucketize tensor_split"
)
#: Types of settings whose text says all.
PLAIN = (type(None), type(...), bool, int, float, complex, str, torch.dtype, torch.device, torch.memory_format)
_NUMBERS = numbers_from()


@dataclass(frozen=True, eq=False)
class Alone:
    """The pass of the first datum alone.

    Attributes:
        f: Output (1, *C) of this datum, with its graph.
        theta: The leaves of the graph, the tracked parameters by name.
        text: A digest of the operations.
        reads: True if operations depend on values of tensors, and so perhaps on the data.
    """

    f: Tensor
    theta: dict[str, Tensor]
    text: str
    reads: bool

    def gradients(self, column: Tensor) -> dict[str, Tensor | None]:
        """The gradients (1, …) of each parameter for a column (1, *C) in output space; None where f has none.

        Args:
            column: The column.

        Cost: one backward pass of one datum.
        """
        with recording():  # in which activations are recomputed as they were computed
            found = pull(self.f, list(self.theta.values()), column.unsqueeze(0))
        return dict(zip(self.theta, found, strict=True))


def pass_alone(network: Network, x: Inputs) -> Alone:
    """The pass of the first of these data.

    Args:
        network: The network.
        x: Inputs.

    Raises:
        ValueError: a reentrant checkpoint hides parameters from the graph, in which they have no gradient.

    Cost: one forward pass of one datum.
    """
    x = take(x, slice(0, 1))
    with torch.inference_mode(False):  # without a gradient of its inputs, a checkpoint would leave no node
        leaves = apply(lambda tensor: tensor.clone().requires_grad_() if tensor.is_floating_point() else tensor, x)
    with recording():
        try:
            trace = Trace()
            f, theta = network.at_leaves(leaves, trace.over)
        except RuntimeError:  # it does with its inputs what it cannot do where they have a gradient
            trace = Trace()
            f, theta = network.at_leaves(x, trace.over)
    nodes = [type(node).__name__ for node in nodes_behind([f])]
    if "CheckpointFunctionBackward" in nodes:
        raise ValueError(RECOMPUTES)
    return Alone(f, theta, trace.digest(nodes), trace.reads)


class Trace(TorchFunctionMode):
    """The operations of one pass: which ones, on which tensors and with which settings, in their order.

    Whatever changes them is noticed: layers, settings, hooks, parametrisations, functions, control flow. Inputs and
    results are numbered, and noted by their shapes alone; tensors from elsewhere, such as parameters, buffers and
    constants, by their values too.

    Attributes:
        reads: True if operations depend on values of tensors.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads = False
        self._lines = hashlib.sha256()
        self._tensors: dict[int, tuple[int, Tensor]] = {}  # keeps the tensors alive, so that no id is reused
        self._names: dict[int, str] = {}
        self._started = False

    @contextmanager
    def over(self, module: nn.Module) -> Iterator[None]:
        """Note the operations of a call of this module.

        Args:
            module: Module of the call.
        """
        self._names = {id(parameter): name for name, parameter in module.named_parameters()}
        if any(getattr(layer, "_backward_hooks", None) for layer in module.modules()):  # it may change any gradient
            self._note(f"{next(_NUMBERS)}")
        handle = module.register_forward_pre_hook(self._start, prepend=True, with_kwargs=True)
        try:
            with self:
                yield
        finally:
            handle.remove()

    def digest(self, more: object) -> str:
        """A digest of all that was noted.

        Args:
            more: An object whose text is added.
        """
        self._note(repr(more) if self._started else f"{next(_NUMBERS)}")  # hooks were not called: equal to nothing
        return self._lines.hexdigest()

    def __torch_function__(self, func: Any, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Note the operation, and run it."""
        kwargs = kwargs or {}
        if not self._started:  # copies of buffers
            return func(*args, **kwargs)
        name = name_of(func)
        picks = name in ("__getitem__", "__setitem__") and tensors_in(args[1:2])
        self.reads |= bool(picks) or name.rstrip("_") in READING or name in READING
        self._note(f"{getattr(func, '__module__', '')} {name} {self._described((args, kwargs))}")
        output = func(*args, **kwargs)
        self._note(" ".join(self._made(tensor) for tensor in tensors_in((output,))))
        self.reads |= name == "where" and not isinstance(output, Tensor)
        return output

    def _start(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        if not self._started:  # a module may call itself
            self._started = True
            made = [self._made(tensor) for tensor in tensors_in((args, kwargs))]
            self._note(f"{made} {self._described((args, kwargs))}")

    def _note(self, line: str) -> None:
        self._lines.update(f"{line}\n".encode())

    def _made(self, tensor: Tensor) -> str:
        """Number and shape of an input or a result."""
        number, _ = self._tensors.setdefault(id(tensor), (len(self._tensors), tensor))
        return f"{number} {tuple(tensor.shape)} {tensor.dtype} {tensor.device}"

    def _described(self, value: Any) -> str:
        """A tensor by its number, and where it is from elsewhere by its values; all else by its text."""
        if isinstance(value, Tensor):
            if id(value) in self._tensors:
                return f"tensor {self._tensors[id(value)][0]}"
            return f"tensor {self._made(value)} {self._names.get(id(value), '')} {_probed(value)}"
        if isinstance(value, tuple | list):
            return f"{type(value).__name__}({', '.join(map(self._described, value))})"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{key!r}: {self._described(each)}' for key, each in value.items())}}}"
        if isinstance(value, slice):
            return f"slice{self._described((value.start, value.stop, value.step))}"
        if isinstance(value, PLAIN):
            return repr(value)
        if isinstance(value, type):
            return f"{value.__module__} {value.__qualname__}"
        return f"{type(value).__name__} {next(_NUMBERS)}"  # equal to nothing


def _probed(tensor: Tensor) -> str:
    """A digest of some entries."""
    try:
        flat = tensor.detach().reshape(-1)
        some = flat[:: max(1, len(flat) // PROBED)].cpu().contiguous()
        return hashlib.sha256(some.view(torch.uint8).numpy().data).hexdigest()
    except (RuntimeError, TypeError, NotImplementedError):  # quantised, sparse
        return f"{next(_NUMBERS)}"
