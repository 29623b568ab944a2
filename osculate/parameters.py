"""Named parameters, the flat vector, and subsets of them: the only place that flattens.

A :class:`ParameterSpace` says in which order the tensors of a network stand in the flat vector θ (the order of
``named_parameters()``). A :class:`Network` is a private copy of the user's module seen as a function f(θ, x).
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy

from osculate.inputs import Inputs, apply, arguments, count, moved, require_type, returned, tensors
from osculate.registry import choose


@dataclass(frozen=True)
class ParameterSpace:
    """The names and shapes of the parameters that a posterior is over, in the order of ``named_parameters()``.

    Attributes:
        names: The names of the tensors.
        shapes: The shapes of the tensors.
        sizes: Number of entries of each tensor.
        size: P, the number of parameters.

    >>> space = ParameterSpace.of({"weight": torch.zeros(3, 2), "bias": torch.zeros(3)})
    >>> space.size, space.sizes
    (9, (6, 3))
    >>> space.spread(torch.tensor([1.0, 2.0]))
    tensor([1., 1., 1., 1., 1., 1., 2., 2., 2.])
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(torch.Size(shape).numel() for shape in self.shapes))
        object.__setattr__(self, "size", sum(self.sizes))

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "ParameterSpace":
        """The space of these named tensors."""
        return cls(tuple(tensors), tuple(tuple(tensor.shape) for tensor in tensors.values()))

    def flatten(self, tensors: Mapping[str, Tensor]) -> Float[Tensor, " P"]:
        """Named tensors to the flat vector θ."""
        return torch.cat([tensors[name].reshape(-1) for name in self.names])

    def unflatten(self, theta: Shaped[Tensor, "*S P"]) -> dict[str, Tensor]:
        """The flat vector θ, or a stack of them, to named tensors (views)."""
        parts = theta.split(self.sizes, dim=-1)
        batch = theta.shape[:-1]
        return {
            name: part.reshape((*batch, *shape))
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }

    def positions(self) -> dict[str, Int[Tensor, "..."]]:
        """The positions of the entries of each tensor in θ, in the shape of the tensor."""
        return self.unflatten(torch.arange(self.size))

    def spread(self, values: Float[Tensor, " T"]) -> Float[Tensor, " P"]:
        """One value for each tensor to one for each parameter."""
        return torch.repeat_interleave(values, torch.tensor(self.sizes, device=values.device), output_size=self.size)

    def totals(self, vector: Float[Tensor, " P"]) -> Float[Tensor, " T"]:
        """The sum of θ-shaped values over each tensor (the transpose of :meth:`spread`)."""
        return torch.stack([part.sum() for part in vector.split(self.sizes)])

    def offsets(self) -> tuple[int, ...]:
        """Position of the first entry of each tensor in θ."""
        return tuple(accumulate(self.sizes, initial=0))[:-1]


@dataclass(frozen=True)
class _Workplace:
    """A copy of a module for one call at a time.

    Attributes:
        module: The copy; its tensors are those of the original.
        layers: Each of its layers beside the original.
    """

    module: nn.Module
    layers: list[tuple[nn.Module, nn.Module]]

    @classmethod
    def of(cls, module: nn.Module) -> "_Workplace":
        """A copy with layers and attributes of its own; the tensors, also those in attributes, are shared."""
        attributes = (value for layer in module.modules() for value in vars(layer).values())
        shared = [
            *module.parameters(),
            *module.buffers(),
            *(value for value in attributes if isinstance(value, Tensor)),
        ]
        copied = copy.deepcopy(module, {id(tensor): tensor for tensor in shared})
        return cls(copied, list(zip(copied.modules(), module.modules(), strict=True)))

    def follow(self) -> None:
        """Take over the modes and buffers of the original, which may have moved, and drop those of the last call."""
        for layer, original in self.layers:
            if layer.training is not original.training:
                layer.training = original.training
            if original._buffers:
                layer._buffers.update(original._buffers)

    def report(self) -> None:
        """Give the original the sizes that its layers learned from their first inputs, such as that of a code."""
        for layer, original in self.layers:
            for name, value in vars(layer).items():
                if isinstance(value, int) and vars(original).get(name, value) is None:
                    setattr(original, name, value)


class Network:
    """A private, frozen copy of a module, as a function of a chosen set of its parameters.

    The copy makes a posterior independent of what happens to the user's module afterwards; it costs one set of
    parameters and buffers. A call works on a second copy, which shares the tensors, so that several threads may call
    one network: it keeps as many of these as calls ever ran at the same time. Whatever a forward pass writes into
    buffers is gone after the call.

    Args:
        model: The trained module. It is copied and left as it is.
        names: The parameters that count as θ; the others are constants.
        device: The device of the copy, by default that of the module.
        dtype: The floating type of the copy, by default that of the module.

    Attributes:
        module: The copy. Its tensors may be changed in place, and its modes; hooks belong on that of a :meth:`view`.
        space: The tracked parameters.
        device: Device of the parameters.
        dtype: Floating type of the parameters.
        state_dtype: Floating type of sums over data: that of the parameters, single precision for half ones.
    """

    def __init__(
        self,
        model: nn.Module,
        names: Iterable[str],
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        with torch.inference_mode(False):  # or the copies could never have a gradient
            self.module = frozen_copy(model)
            if device is not None or dtype is not None:
                self.module.to(device=device, dtype=dtype)
        chosen = set(names)
        tracked = {name: p for name, p in self.module.named_parameters() if name in chosen}
        self.space = ParameterSpace.of(tracked)
        # normalisation layers stay in single precision in many half-precision networks
        self._dtypes = {name: p.dtype for name, p in tracked.items()}
        # whether a parameter goes by several names: a look-up at every call costs as much as a small layer
        every = self.module.named_parameters(remove_duplicate=False)
        self._tied = sum(1 for _ in every) > sum(1 for _ in self.module.named_parameters())
        numbers = chain(self.module.parameters(), filter(torch.is_floating_point, self.module.buffers()))
        first = next(numbers, torch.empty(0))  # a module that computes without numbers of its own
        self.device, self.dtype = first.device, first.dtype
        self.state_dtype = torch.float32 if first.dtype in (torch.float16, torch.bfloat16) else first.dtype
        self._idle: list[_Workplace] = []
        self._changes_inputs: bool | None = None  # its first operation is in place: the first call shows it
        self._changes_buffers: bool | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_idle": []}

    def view(self) -> "Network":
        """The same network with modules of its own, which share the tensors: hooks and modes there are its own."""
        view = copy.copy(self)
        view._changes_inputs = view._changes_buffers = None  # other modes may change what a call writes
        view.module = _Workplace.of(self.module).module
        return view

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The tracked parameters at the mode, by name; new tensors with the same storage."""
        return {name: self.module.get_parameter(name).detach() for name in self.space.names}

    @property
    def mean(self) -> Float[Tensor, " P"]:
        """The mode θ*, flat; in single precision where the network is in half."""
        return self.space.flatten(self.parameters).to(self.state_dtype)

    def __call__(
        self,
        x: Inputs,
        theta: Mapping[str, Tensor] | None = None,
        within: AbstractContextManager | None = None,
    ) -> Tensor:
        """f(x; θ), at the mode where ``theta`` is not given.

        Args:
            x: Inputs of N data.
            theta: Tracked parameters by name.
            within: Context in which the module runs, such as a recorder of its operations.

        Raises:
            ValueError: the output is not a tensor with one row for each input.
            TypeError: inputs and parameters are of different floating types.
        """
        try:
            workplace = self._idle.pop()
        except IndexError:
            with torch.inference_mode(False):
                workplace = _Workplace.of(self.module)
        workplace.follow()
        require_type(x, self.dtype)
        values = {name: value.to(self._dtypes[name]) for name, value in (theta or {}).items()}
        x = moved(x, self.device)
        if self._changes_inputs is not False or any(tensor.is_inference() for tensor in tensors(x).values()):
            x = apply(torch.clone, x)
        buffers: dict[str, Tensor] = {}
        with within or nullcontext():
            if self._changes_buffers is not False:
                buffers = dict(self.module.named_buffers(remove_duplicate=False))
                copies = {id(buffer): buffer.clone() for buffer in buffers.values()}
                buffers = {name: copies[id(buffer)] for name, buffer in buffers.items()}
                values |= buffers
            f = functional_call(workplace.module, values, *arguments(x), tie_weights=self._tied)
        if self._changes_buffers is None:
            workplace.report()
        self._idle.append(workplace)  # not after an exception, which may leave a layer half changed
        if self._changes_buffers is None and not torch.is_inference_mode_enabled():  # where tensors have no version
            self._changes_inputs = any(tensor._version for tensor in tensors(x).values())
            self._changes_buffers = any(buffer._version for buffer in buffers.values())
        f = getattr(f, "logits", f)  # the output of a Hugging Face model
        if not isinstance(f, Tensor) or f.ndim == 0 or len(f) != count(x):
            raise ValueError(returned(f, x))
        return f

    def in_state_precision(self) -> "Network":
        """The same network, or a copy in single precision of one in half."""
        return self if self.dtype == self.state_dtype else self.to(dtype=self.state_dtype)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Network":
        """A copy on another device or in another floating type."""
        return Network(self.module, self.space.names, device, dtype)


def frozen_copy(model: nn.Module) -> nn.Module:
    """A deep copy of a module, without gradients.

    Raises:
        ValueError: it keeps an activation with its gradient graph, which cannot be copied, or is not yet initialised.
    """
    require_shapes(model)
    attributes = [value for layer in model.modules() for value in vars(layer).values() if isinstance(value, Tensor)]
    # a tensor with a gradient graph, such as the weight that weight normalisation keeps, has no deep copy of its own
    memo = {id(value): value.detach().clone() for value in attributes if value.grad_fn is not None}
    try:
        module = copy.deepcopy(model, memo)
    except RuntimeError as error:
        raise ValueError(
            f"the network cannot be copied ({error}): it keeps an activation with its gradient graph in an attribute. "
            "Detach or delete it."
        ) from error
    for parameter in module.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
    return module


def require_shapes(model: nn.Module) -> None:
    """Refuse parameters of lazy layers that no input has given a shape.

    Raises:
        ValueError: there is one; the message names it.
    """
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if is_lazy(tensor):
            raise ValueError(
                f"{name!r} of a lazy layer has no shape yet: call the network once, model(x[:2]), and then pass it on."
            )


def require_deterministic_layers(model: nn.Module) -> None:
    """Refuse layers whose output for one input is random or depends on the other inputs.

    Raises:
        ValueError: a dropout layer is active, or a batch normalisation is in training mode; the message names it.
    """
    for name, layer in model.named_modules():
        if is_active_dropout(layer):
            raise ValueError(
                f"dropout layer {name!r} is active (p={layer.p}): the curvature of a random function is not "
                "defined. Call model.eval() first."
            )
        if layer.training and isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"batch normalisation {name!r} is in training mode: each output depends on the whole batch. "
                "Call model.eval() first, so that the running statistics are used."
            )


def is_active_dropout(layer: nn.Module) -> bool:
    """True for a dropout layer in training mode with a positive rate."""
    return layer.training and isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0


def has_deterministic_layers(model: nn.Module) -> bool:
    """True if :func:`require_deterministic_layers` accepts the module."""
    try:
        require_deterministic_layers(model)
    except ValueError:
        return False
    return True


def trainable(model: nn.Module) -> tuple[str, ...]:
    """The names of the parameters that require gradients.

    Raises:
        ValueError: there is none, or a lazy layer has no parameters yet.
    """
    require_shapes(model)
    names = tuple(name for name, p in model.named_parameters() if p.requires_grad)
    if not names:
        count = sum(1 for _ in model.parameters())
        raise ValueError(
            f"the network has no trainable parameter ({count} tensors, none with requires_grad=True): "
            "there is nothing to be uncertain about. Set requires_grad=True on those that the posterior is over."
        )
    return names


def point_estimated(model: nn.Module) -> frozenset[str]:
    """The parameters that a module declares as ``point_estimated``: trained, and left out of posteriors."""
    return frozenset(getattr(model, "point_estimated", ()))


def select(model: nn.Module, wanted: Iterable[str]) -> tuple[str, ...]:
    """The parameters that these parameter or module names stand for, in the order of ``named_parameters()``.

    Raises:
        ValueError: a name is neither a parameter nor a module with parameters.

    >>> select(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), ["1", "0.bias"])
    ('0.bias', '1.weight', '1.bias')
    """
    known = [name for name, _ in model.named_parameters()]
    first_name = {id(p): name for name, p in model.named_parameters()}
    every = [(alias, first_name[id(p)]) for alias, p in model.named_parameters(remove_duplicate=False)]
    chosen: set[str] = set()
    for name in wanted:
        members = [first for alias, first in every if alias == name or alias.startswith(f"{name}.")]
        if not members:
            modules = [
                module for module, layer in model.named_modules() if module and any(True for _ in layer.parameters())
            ]
            choose("parameter or module", name, [*known, *modules])
        chosen.update(members)
    if not chosen:
        raise ValueError("subset is an empty list: name at least one parameter or module.")
    return tuple(name for name in known if name in chosen)


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Leave the mode of every layer as it was found, also after an exception."""
    modes = [(layer, layer.training) for layer in model.modules()]
    try:
        yield
    finally:
        for layer, training in modes:
            layer.training = training
