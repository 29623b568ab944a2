"""Tensors that are made of parameters alone: slices, transposes, position tables, normalised weights.

A parameter often reaches an operation in another form. A packed projection is cut in three, a weight is transposed, a
class token is expanded over the batch, a kernel is divided by its norm. The origin of such a tensor is followed through
the forward pass: the entries of a :class:`View` are entries of one parameter, given by the same view of their positions
in θ; a :class:`Function` is any other tensor, and rows are pulled through it by autograd.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.columns import pull

#: Operations that select or reorder the entries of a tensor.
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
        """The same without the batch axis of the tensor; None if data do not share their entries."""
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
        pulled = pull(self.tensor, leaves, columns, rows.requires_grad)
        zeros = [leaf.detach().new_zeros(len(columns), leaf.numel()) for leaf in leaves]
        parts = [z if g is None else g.reshape(z.shape) for g, z in zip(pulled, zeros, strict=True)]
        return torch.cat(parts, -1).unflatten(0, rows.shape[:2])

    def for_each_datum(self, tensor: Tensor) -> "Function | None":
        """The same without the batch axis of the tensor, where it has length one."""
        return self if len(tensor) == 1 else None


Source: TypeAlias = View | Function
