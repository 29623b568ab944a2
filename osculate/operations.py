"""Torch operations as a ``TorchFunctionMode`` sees them: which are called, their names, their tensors and nodes."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import Tensor
from torch.autograd.graph import Node
from torch.overrides import TorchFunctionMode


class Calls(TorchFunctionMode):
    """The torch operations that are called while it is active.

    Attributes:
        seen: The operations, in the order of their first calls.

    >>> from osculate.operations import Calls, name_of
    >>> x = torch.ones(2)
    >>> with Calls() as calls:
    ...     y = torch.relu(x).sum()
    >>> [name_of(operation) for operation in calls.seen]
    ['relu', 'sum']
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[Callable, None] = {}

    def __torch_function__(
        self, operation: Callable, types: object, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Note the operation, and run it."""
        self.seen[operation] = None
        return operation(*args, **(kwargs or {}))


def name_of(operation: Callable) -> str:
    """The name of an operation; of the read attribute where it reads one, such as ``T``."""
    name = getattr(operation, "__name__", type(operation).__name__)
    return getattr(operation.__self__, "__name__", name) if name == "__get__" else name  # type: ignore[attr-defined]


def in_place(operation: Callable) -> bool:
    """True if an operation writes into its first argument, by its name."""
    name = getattr(operation, "__name__", "")
    if name.endswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in ("__int__", "__index__", "__invert__"))
    return name.endswith("_")


def tensors_in(values: Iterable[object]) -> list[Tensor]:
    """The tensors among arguments, lists, tuples and dictionaries of them, in order."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, tuple | list):
            found += tensors_in(value)
        elif isinstance(value, dict):
            found += tensors_in(value.values())
    return found


def nodes_behind(results: Iterable[Tensor], stop: Iterable[Node] = ()) -> Iterator[Node]:
    """The nodes of the graph that leads to these tensors, up to those in ``stop``."""
    seen = set(stop)
    waiting = [tensor.grad_fn for tensor in results if tensor.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            yield node
            waiting += [other for other, _ in node.next_functions if other is not None]
