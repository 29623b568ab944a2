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
from osculate.operations import in_place, tensors_in

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
        names: The name of the parameter, alone.
        shape: The shape of the parameter.
        take: A function from a tensor of this shape to one of the view's shape.
        whole: True if every entry of the parameter occurs exactly once.
    """

    names: tuple[str]
    shape: torch.Size
    take: Callable[[Tensor], Tensor]
    whole: bool

    def arrange(self, positions: Mapping[str, Tensor]) -> Tensor:
        """The positions of the entries in θ, flat."""
        return self.take(positions[self.names[0]]).reshape(-1)

    def rows(self, rows: Float[Tensor, "V N k"]) -> Float[Tensor, "V N k"]:
        """Rows with respect to the entries that :meth:`arrange` names, from rows with respect to the tensor."""
        return rows

    def for_each_datum(self, tensor: Tensor) -> "View | None":
        """The same without the batch axis of the tensor; None where data do not share their entries."""
        entries = self.take(torch.arange(self.shape.numel()).reshape(self.shape)) if len(tensor) > 1 else None
        if entries is not None and not bool((entries == entries[0]).all()):
            return None
        return View(self.names, self.shape, lambda p: self.take(p)[0], False)


@dataclass(frozen=True, eq=False)
class Function:
    """A differentiable function of tracked parameters.

    Attributes:
        tensor: The value, with the graph that leads back to the parameters.
        parameters: The parameters by name.
    """

    tensor: Tensor
    parameters: Mapping[str, Tensor]
    whole = False

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters."""
        return tuple(self.parameters)

    def arrange(self, positions: Mapping[str, Tensor]) -> Tensor:
        """The positions of the parameters in θ, flat."""
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
    """The tensors of one forward pass that are made of parameters alone.

    Attributes:
        known: Their sources, by the ids of the tensors.

    Args:
        theta: The tracked parameters by name.
        constants: Tensors that are the same for every datum: buffers and frozen parameters.
    """

    def __init__(self, theta: Mapping[str, Tensor], constants: Iterable[Tensor] = ()) -> None:
        self._theta = dict(theta)
        self.known: dict[int, Source] = {
            id(t): View((name,), t.shape, lambda entries: entries, True) for name, t in theta.items()
        }
        self._kept = list(constants)  # an id stays taken for as long as its tensor lives
        self._constants = {id(tensor) for tensor in self._kept}

    def follow(self, func: Callable, args: tuple, kwargs: dict, output: object) -> set[str]:
        """Note what an operation made of parameters alone, and name the parameters that met data in it."""
        made, writes = tensors_in((output,)), in_place(func)
        if not made and not writes:  # a shape, a number: nothing to follow
            return set()
        leaves = tensors_in((*args, *kwargs.values()))
        mine = [self.known[id(leaf)] for leaf in leaves if id(leaf) in self.known]
        if leaves and writes:
            self._constants.discard(id(leaves[0]))
            self.known.pop(id(leaves[0]), None)
            if not leaves[0].requires_grad:
                return set()
        elif not mine:
            # functions of constants, and positions such as torch.arange(T), are constants; other new tensors are taken
            # as data: the zeros that a recurrent network starts from, for example, have a batch axis
            if all(id(leaf) in self._constants for leaf in leaves):
                constants = [t for t in made if leaves or t.dtype in (torch.int64, torch.int32)]
                self._kept += constants
                self._constants.update(map(id, constants))
        else:
            made = [tensor for tensor in made if tensor.requires_grad]
            if all(id(t) in self.known for t in made):  # nothing that can be differentiated, or nothing new
                return set()
            if all(id(leaf) in self.known or id(leaf) in self._constants for leaf in leaves):
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
                take = partial(self._taken, func, args, kwargs, number)
                whole = first.whole and tensor.numel() == first.shape.numel()
                source: Source = View(first.names, first.shape, take, whole)
            else:
                source = Function(tensor, {name: self._theta[name] for name in names})
            self._kept.append(tensor)
            self.known[id(tensor)] = source

    def _taken(self, func: Callable, args: tuple, kwargs: dict, number: int, entries: Tensor) -> Tensor:
        """The view of entries that an operation made of a parameter."""

        def replaced(leaf: Any) -> Any:
            source = self.known.get(id(leaf))
            if isinstance(source, View):
                return source.take(entries)
            return leaf.to(entries.device) if isinstance(leaf, Tensor) else leaf

        args, kwargs = tree_map(replaced, (args, kwargs))
        return tree_leaves(func(*args, **kwargs))[number]


def _picks(func: Callable, *args: Any, padding_idx: int | None = None, max_norm: float | None = None, **_: Any) -> bool:
    """True if an operation only picks or reorders entries; a lookup does, without a padding row and a norm."""
    if func is not F.embedding:
        return func in VIEWS
    return padding_idx is None and max_norm is None and args[2:4] in ((), (None,), (None, None))
