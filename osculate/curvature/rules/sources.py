"""Tensors that are made of parameters alone: slices, transposes, position tables, normalised weights.

A parameter seldom reaches an operation only as itself. A packed projection is cut in three, a weight is transposed, a
class token is expanded over the batch, a kernel is divided by its norm. What such a tensor is made of is followed
through the forward pass: a :class:`View` has entries that are entries of one parameter, and the same view of their
positions in θ says which; a :class:`Function` is anything else, and rows are pulled through it by autograd.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from osculate.curvature.columns import pull

#: Operations that pick or reorder the entries of a tensor.
VIEWS: frozenset[Callable] = frozenset(
    {
        *(torch.chunk, torch.split, torch.unbind, torch.narrow, torch.select, torch.index_select, F.embedding),
        *(torch.t, torch.transpose, torch.swapaxes, torch.permute, torch.movedim, torch.flip, torch.roll, torch.tile),
        *(torch.reshape, torch.flatten, torch.unflatten, torch.squeeze, torch.unsqueeze, torch.broadcast_to),
        *(torch.clone, torch.tensor_split, torch.diagonal),
        *(Tensor.chunk, Tensor.split, Tensor.unbind, Tensor.narrow, Tensor.select, Tensor.index_select),
        *(Tensor.t, Tensor.transpose, Tensor.swapaxes, Tensor.permute, Tensor.movedim, Tensor.flip, Tensor.roll),
        *(Tensor.reshape, Tensor.view, Tensor.flatten, Tensor.unflatten, Tensor.squeeze, Tensor.unsqueeze),
        *(Tensor.expand, Tensor.broadcast_to, Tensor.repeat, Tensor.tile, Tensor.contiguous),
        *(Tensor.clone, Tensor.diagonal, Tensor.tensor_split, Tensor.__getitem__),
        *(Tensor.T.__get__, Tensor.mT.__get__),  # type: ignore[attr-defined]
    }
)


@dataclass(frozen=True, eq=False)
class View:
    """Entries of one tracked parameter.

    Attributes:
        name: the parameter.
        shape: its shape.
        take: from a tensor of this shape to one of the view's shape.
        whole: whether every entry of the parameter occurs exactly once.
    """

    name: str
    shape: torch.Size
    take: Callable[[Tensor], Tensor]
    whole: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The parameter."""
        return (self.name,)

    def arrange(self, positions: Mapping[str, Tensor]) -> Tensor:
        """Where the entries stand in θ, flat."""
        return self.take(positions[self.name]).reshape(-1)

    def rows(self, rows: Float[Tensor, "V N k"]) -> Float[Tensor, "V N k"]:
        """Rows with respect to the entries that :meth:`arrange` names, from rows with respect to the tensor."""
        return rows

    def for_each_datum(self, tensor: Tensor) -> "View | None":
        """The same without the batch axis of the tensor; None where data do not share their entries."""
        entries = self.take(torch.arange(self.shape.numel()).reshape(self.shape)) if len(tensor) > 1 else None
        if entries is not None and not bool((entries == entries[0]).all()):
            return None
        return View(self.name, self.shape, lambda p: self.take(p)[0], False)


@dataclass(frozen=True, eq=False)
class Function:
    """A differentiable function of tracked parameters.

    Attributes:
        tensor: its value, with the graph that leads back to the parameters.
        parameters: them, by name.
    """

    tensor: Tensor
    parameters: Mapping[str, Tensor]
    whole = False

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters."""
        return tuple(self.parameters)

    def arrange(self, positions: Mapping[str, Tensor]) -> Tensor:
        """Where the parameters stand in θ, flat."""
        return torch.cat([positions[name].reshape(-1) for name in self.parameters])

    def rows(self, rows: Float[Tensor, "V N k"]) -> Float[Tensor, "V N p"]:
        """Rows with respect to the parameters, from rows with respect to the tensor; one VJP of the function each."""
        leaves = list(self.parameters.values())
        columns = rows.reshape(-1, *self.tensor.shape)
        pulled = pull(self.tensor, leaves, columns)
        zeros = [leaf.detach().new_zeros(len(columns), leaf.numel()) for leaf in leaves]
        parts = [z if g is None else g.reshape(z.shape) for g, z in zip(pulled, zeros, strict=True)]
        return torch.cat(parts, -1).unflatten(0, rows.shape[:2])

    def for_each_datum(self, tensor: Tensor) -> "Function | None":
        """The same without the batch axis of the tensor, where it has length one."""
        return self if len(tensor) == 1 else None


Source: TypeAlias = View | Function


class Sources:
    """What the tensors of one forward pass are made of.

    Args:
        theta: the tracked parameters by name.
        constants: tensors that are the same for every datum: buffers and frozen parameters.
    """

    def __init__(self, theta: Mapping[str, Tensor], constants: Iterable[Tensor] = ()) -> None:
        self._theta = dict(theta)
        self.known: dict[int, Source] = {id(t): View(name, t.shape, _itself, True) for name, t in theta.items()}
        self._constants: set[int] = set()
        self._kept: list[Tensor] = []  # an id stays taken for as long as its tensor lives
        self._keep(constants)

    def __getitem__(self, tensor: object) -> Source | None:
        """How a tensor is made of tracked parameters; None for anything that is not."""
        return self.known.get(id(tensor))

    def follow(self, func: Callable, args: tuple, kwargs: dict, output: object) -> set[str]:
        """Note what an operation made of parameters alone, and name the parameters that met data in it."""
        made = _tensors(output)
        if not made and not in_place(func):  # a shape, a number: nothing to follow
            return set()
        leaves = _tensors(args, kwargs)
        mine = [source for leaf in leaves if (source := self[leaf]) is not None]
        if leaves and in_place(func):
            self._constants.discard(id(leaves[0]))
            self.known.pop(id(leaves[0]), None)
            if not leaves[0].requires_grad:
                return set()
        elif not mine:
            self._follow_constants(leaves, made)
        else:
            made = [tensor for tensor in made if tensor.requires_grad]
            if all(id(t) in self.known for t in made):  # nothing that can be differentiated, or nothing new
                return set()
            others = [leaf for leaf in leaves if self[leaf] is None and id(leaf) not in self._constants]
            if not others:
                self._follow_parameters(func, args, kwargs, mine, made)
                return set()
        return {name for source in mine for name in source.names}

    def _keep(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            self._kept.append(tensor)
            self._constants.add(id(tensor))

    def _follow_constants(self, leaves: list[Tensor], made: list[Tensor]) -> None:
        """Functions of constants, and positions such as ``torch.arange(T)``; other new tensors are taken as data.

        The zeros that a recurrent network starts from, for example, have a batch axis.
        """
        if all(id(leaf) in self._constants for leaf in leaves):
            self._keep(t for t in made if leaves or t.dtype in (torch.int64, torch.int32))

    def _follow_parameters(
        self, func: Callable, args: tuple, kwargs: dict, mine: list[Source], made: list[Tensor]
    ) -> None:
        first = mine[0]
        as_view = len(mine) == 1 and isinstance(first, View) and _picks(func, *args, **kwargs)
        names = dict.fromkeys(name for source in mine for name in source.names)
        for number, tensor in enumerate(made):
            if as_view and isinstance(first, View):
                take = partial(self._taken, func, args, kwargs, number)
                whole = first.whole and tensor.numel() == first.shape.numel()
                source: Source = View(first.name, first.shape, take, whole)
            else:
                source = Function(tensor, {name: self._theta[name] for name in names})
            self._kept.append(tensor)
            self.known[id(tensor)] = source

    def _taken(self, func: Callable, args: tuple, kwargs: dict, number: int, entries: Tensor) -> Tensor:
        """The view of entries that an operation made of a parameter."""

        def replaced(leaf: Any) -> Any:
            source = self[leaf]
            if isinstance(source, View):
                return source.take(entries)
            return leaf.to(entries.device) if isinstance(leaf, Tensor) else leaf

        args, kwargs = tree_map(replaced, (args, kwargs))
        return tree_leaves(func(*args, **kwargs))[number]


def _tensors(*values: object) -> list[Tensor]:
    """The tensors in arguments or an output, in order."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, tuple | list):
            found += _tensors(*value)
        elif isinstance(value, dict):
            found += _tensors(*value.values())
    return found


def _itself(entries: Tensor) -> Tensor:
    return entries


def in_place(func: Callable) -> bool:
    """True if an operation writes into its first argument, by its name."""
    name = getattr(func, "__name__", "")
    if name.endswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in ("__int__", "__index__", "__invert__"))
    return name.endswith("_")


def _picks(func: Callable, *args: Any, padding_idx: int | None = None, max_norm: float | None = None, **_: Any) -> bool:
    """Whether an operation only picks or reorders entries: a lookup does, unless it has a padding row or a norm."""
    if func is not F.embedding:
        return func in VIEWS
    return padding_idx is None and max_norm is None and args[2:4] in ((), (None,), (None, None))
