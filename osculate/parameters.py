"""Named parameters, the flat vector, and subsets of them: the only place that flattens.

A :class:`ParameterSpace` says in which order the tensors of a network are flattened into the vector θ (the order of
``named_parameters()``). A :class:`Network` is a private copy of the user's module seen as a function f(θ, x).
"""

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy

from osculate.inputs import Inputs, apply, arguments, count, moved, output_of, require_type, returned, tensors
from osculate.registry import choose

#: A function from the module that a call of a network runs to the context in which it runs.
Within = Callable[[nn.Module], AbstractContextManager]


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

    def positions(self, names: Iterable[str] | None = None) -> dict[str, Int[Tensor, "..."]]:
        """The positions of the entries of each tensor in θ, or of some of them, in the shape of the tensor."""
        wanted = set(self.names if names is None else names)
        every = zip(self.names, self.shapes, self.offsets(), self.sizes, strict=True)
        return {
            name: torch.arange(start, start + size).reshape(shape)
            for name, shape, start, size in every
            if name in wanted
        }

    def spread(self, values: Float[Tensor, " T"]) -> Float[Tensor, " P"]:
        """One value for each tensor to one for each parameter."""
        return torch.repeat_interleave(values, torch.tensor(self.sizes, device=values.device), output_size=self.size)

    def totals(self, vector: Float[Tensor, " P"]) -> Float[Tensor, " T"]:
        """The sum of θ-shaped values over each tensor (the transpose of :meth:`spread`)."""
        return torch.stack([part.sum() for part in vector.split(self.sizes)])

    def offsets(self) -> tuple[int, ...]:
        """Position of the first entry of each tensor in θ."""
        return tuple(accumulate(self.sizes, initial=0))[:-1]


class _CallCopy:
    """A copy of a module for one call at a time, restored after each call.

    It shares the parameters of the original; layers and all other tensors are copies.

    Args:
        original: The module.

    Attributes:
        module: The copy.
        tensors: Copied buffers and attributes, by index of the layer and name.
    """

    def __init__(self, original: nn.Module) -> None:
        memo: dict[int, Any] = {id(tensor): tensor for tensor in original.parameters()}
        # in a separate thread: a surrounding transform of torch.func would wrap the tensors that are made here
        with ThreadPoolExecutor(1) as thread:
            self.module: nn.Module = thread.submit(copy.deepcopy, original, memo).result()
        pairs = zip(self.module.modules(), original.modules(), strict=True)
        # a layer that torch.jit compiled keeps its state outside Python, and is left as it is
        self._layers = [(layer, model, vars(layer).copy()) for layer, model in pairs if "training" in vars(layer)]
        self.tensors: dict[tuple[int, str], tuple[dict[str, Any], Tensor]] = {}
        self._sources: list[tuple[dict[str, Any], str, Tensor, int]] = []
        self._before: list[tuple[Any, Any]] = []  # dictionaries and lists, each with a copy of its items
        for number, (layer, model, attributes) in enumerate(self._layers):
            both: list[tuple[dict[str, Any], dict[str, Any]]] = [
                (vars(layer), vars(model)),
                (layer._buffers, model._buffers),
            ]
            for items, sources in both:
                for name, source in sources.items():
                    if isinstance(source, Tensor):
                        self.tensors[number, name] = items, items[name]
                        self._sources.append((sources, name, source, source._version))
            own = [value for name, value in attributes.items() if type(value) in (dict, list) and name[0] != "_"]
            self._before += [(items, items.copy()) for items in (layer._buffers, layer._modules, *own)]
            self._before.append((vars(layer), attributes))
        named = {id(tensor) for _, tensor in self.tensors.values()} | {id(p) for p in self.module.parameters()}
        others = [value for value in memo.values() if isinstance(value, Tensor) and id(value) not in named]
        self._others = [(tensor, tensor._version) for tensor in others]
        self._versions = {key: tensor._version for key, (_, tensor) in self.tensors.items()}

    def follows(self) -> bool:
        """Copy the modes of the original; return True if its tensors are still those that were copied."""
        for layer, original, attributes in self._layers:
            if attributes["training"] is not original.training:
                layer.training = attributes["training"] = original.training
        return all(
            items.get(name) is tensor and tensor._version == version for items, name, tensor, version in self._sources
        )

    def protect(self, keys: Iterable[tuple[int, str]]) -> dict[tuple[int, str], Tensor]:
        """Replace these tensors by clones, into which the call may write."""
        copies: dict[int, Tensor] = {}
        placed = {}
        for key in keys:
            items, tensor = self.tensors[key]
            if id(tensor) not in copies:  # it may have two names
                copies[id(tensor)] = tensor.clone()
            items[key[1]] = placed[key] = copies[id(tensor)]
        return placed

    def give_learned_sizes(self) -> None:
        """Give the original the sizes that its layers learned from their first inputs, such as that of a code."""
        for layer, original, attributes in self._layers:
            for name in getattr(layer, "learned_sizes", ()):
                attributes[name] = getattr(layer, name)
                setattr(original, name, attributes[name])

    def clear(self) -> tuple[bool, list[tuple[int, str]]]:
        """Undo what a call did to the layers.

        Returns:
            True if everything is as before the call, and the keys of the tensors that the call wrote into.
        """
        for items, before in self._before:
            if isinstance(items, list):
                items[:] = before
                continue
            if len(items) > len(before):
                for name in items.keys() - before.keys():
                    del items[name]
            items.update(before)
        written = [key for key, (_, tensor) in self.tensors.items() if tensor._version != self._versions[key]]
        return not written and all(tensor._version == version for tensor, version in self._others), written


class Network:
    """A private, frozen copy of a module, as a function of a chosen set of its parameters.

    The copy makes a posterior independent of later changes of the user's module; it costs one set of parameters and
    buffers. A call works on a second copy, which shares the parameters, so that several threads may call one network;
    as many of these are kept as calls ever ran at the same time. Whatever a forward pass writes into buffers and
    attributes, including lists and dictionaries, is undone after the call. What it writes into parameters, as an
    embedding with ``max_norm`` does, stays in the copy.

    Args:
        model: The trained module. It is copied and left as it is.
        names: The parameters that make up θ; the others are constants.
        device: The device of the copy, by default that of the module.
        dtype: The floating type of the copy, by default that of the module.

    Attributes:
        module: The copy. Its parameters, buffers and modes may be changed in place.
        space: The tracked parameters.
        device: Device of the parameters.
        dtype: Floating type of the parameters.
        state_dtype: Floating type of sums over data: that of the parameters, but single precision for half precision.
    """

    def __init__(
        self,
        model: nn.Module,
        names: Iterable[str],
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        with torch.inference_mode(False):  # otherwise the copies could never have a gradient
            self.module = frozen_copy(model)
            if device is not None or dtype is not None:
                self.module.to(device=device, dtype=dtype)
        chosen = set(names)
        tracked = {name: p for name, p in self.module.named_parameters() if name in chosen}
        self.space = ParameterSpace.of(tracked)
        # normalisation layers stay in single precision in many half-precision networks
        self._dtypes = {name: p.dtype for name, p in tracked.items()}
        # True if a parameter has several names: a look-up at every call costs as much as a small layer
        every = self.module.named_parameters(remove_duplicate=False)
        self._tied = sum(1 for _ in every) > sum(1 for _ in self.module.named_parameters())
        numbers = chain(self.module.parameters(), filter(torch.is_floating_point, self.module.buffers()))
        first = next(numbers, torch.empty(0))  # a module without parameters and buffers
        self.device, self.dtype = first.device, first.dtype
        self.state_dtype = torch.float32 if first.dtype in (torch.float16, torch.bfloat16) else first.dtype
        self._idle: list[_CallCopy] = []
        self._changes_inputs: bool | None = None  # True if it writes into its inputs: known after the first call
        self._written: set[tuple[int, str]] | None = None  # buffers and attributes that it writes into, likewise

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_idle": []}

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The tracked parameters at the mode, by name; new tensors with the same storage."""
        return {name: self.module.get_parameter(name).detach() for name in self.space.names}

    @property
    def mean(self) -> Float[Tensor, " P"]:
        """The mode θ*, flat; in single precision for a network in half precision."""
        return self.space.flatten(self.parameters).to(self.state_dtype)

    def __call__(
        self,
        x: Inputs,
        theta: Mapping[str, Tensor] | None = None,
        within: Within | None = None,
    ) -> Tensor:
        """f(x; θ), by default at the mode.

        Args:
            x: Inputs of N data.
            theta: Tracked parameters by name.
            within: A function from the module of this call to the context in which it runs, such as a recorder of its
                operations; modes that it sets end with the call, hooks with the context.

        Raises:
            ValueError: the output is not a tensor with one row for each input.
            TypeError: inputs and parameters are of different floating types.
        """
        require_type(x, self.dtype)
        x = moved(x, self.device)
        size, given = count(x), tensors(x).values()
        if self._changes_inputs is not False or any(tensor.is_inference() for tensor in given):
            x = apply(torch.clone, x)
        positional, named = arguments(x, self.module)
        values = {name: value.to(self._dtypes[name]) for name, value in (theta or {}).items()}
        call_copy = self._call_copy()
        protected: dict[tuple[int, str], Tensor] = {}
        try:
            with within(call_copy.module) if within else nullcontext():
                if call_copy.tensors:
                    protected = call_copy.protect(call_copy.tensors if self._written is None else self._written)
                f = functional_call(call_copy.module, values, positional, named, tie_weights=self._tied)
        except Exception:
            self._end(call_copy)
            raise
        if self._written is None:
            call_copy.give_learned_sizes()
            if not torch.is_inference_mode_enabled():  # where tensors have no version
                self._changes_inputs = any(tensor._version for tensor in tensors(x).values())
                self._written = {key for key, tensor in protected.items() if tensor._version}
        self._end(call_copy)
        f = output_of(f, x)
        if f.ndim == 0 or len(f) != size:
            raise ValueError(returned(f, x))
        return f

    def _call_copy(self) -> _CallCopy:
        """A copy of the module that no other call uses."""
        while self._idle:
            with suppress(IndexError):  # another thread was faster
                if (call_copy := self._idle.pop()).follows():
                    return call_copy
        return _CallCopy(self.module)

    def _end(self, call_copy: _CallCopy) -> None:
        """Keep a restored copy for another call; a copy that an interrupt left half changed is never returned."""
        whole, written = call_copy.clear()
        if whole:
            self._idle.append(call_copy)
        elif self._written is not None:
            self._written = self._written.union(written)

    def in_state_precision(self) -> "Network":
        """The same network, or a copy in single precision of a network in half precision."""
        return self if self.dtype == self.state_dtype else self.to(dtype=self.state_dtype)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Network":
        """A copy on another device or in another floating type."""
        return Network(self.module, self.space.names, device, dtype)


class _Uncompiled(nn.Module):
    """A module that ``torch.compile`` has wrapped, without compilation and under the same names."""

    def __init__(self, compiled: nn.Module) -> None:
        super().__init__()
        self._orig_mod = compiled.get_submodule("_orig_mod")
        self.training = compiled.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._orig_mod(*args, **kwargs)


def _uncompiled(module: nn.Module) -> nn.Module:
    """The module with each part that ``torch.compile`` has wrapped replaced, in place."""
    for name, child in module._modules.items():
        if child is not None:
            module._modules[name] = _uncompiled(child)
    return _Uncompiled(module) if "_orig_mod" in module._modules else module


def frozen_copy(model: nn.Module) -> nn.Module:
    """A deep copy of a module, without gradients and without compilation.

    Raises:
        ValueError: an attribute cannot be copied, such as a lock or an activation with its gradient graph, or the
            module is not yet initialised.
        TypeError: a trained layer is scripted.
    """
    require_shapes(model)
    require_unscripted(model)
    _warn_of_hooks(model)
    attributes = [value for layer in model.modules() for value in vars(layer).values() if isinstance(value, Tensor)]
    # a tensor with a gradient graph, such as the weight that weight normalisation keeps, cannot be deep-copied
    memo = {id(value): value.detach().clone() for value in attributes if value.grad_fn is not None}
    try:
        module = _uncompiled(copy.deepcopy(model, memo))
    except RuntimeError as error:
        raise ValueError(
            f"the network cannot be copied ({error}): it keeps an activation with its gradient graph in an attribute. "
            "Detach or delete it."
        ) from error
    except TypeError as error:  # an attribute such as a lock or an open file
        raise ValueError(
            f"the network cannot be copied ({error}): one of its attributes is not data. Delete it before the fit, or "
            "give its class a __deepcopy__."
        ) from error
    for parameter in module.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
    for layer in module.modules():
        if getattr(layer, "sparse", False) is True:  # gradients of embeddings, which are here columns of a matrix
            vars(layer)["sparse"] = False
    return module


def _warn_of_hooks(model: nn.Module) -> None:
    """Warn of hooks that would still act on the user's module: copying a function does not copy its closure."""
    layers = {id(layer) for layer in model.modules()}
    for name, layer in model.named_modules():
        for hook in (*layer._forward_pre_hooks.values(), *layer._forward_hooks.values()):
            used = []
            for cell in getattr(hook, "__closure__", None) or ():
                with suppress(ValueError):  # a variable that has no value yet
                    used.append(cell.cell_contents)
            if any(id(value) in layers for value in used):
                warnings.warn(
                    f"a hook of layer {name!r} uses the network through a variable of the function it was defined in, "
                    "and osculate works on copies: there the hook still reads and writes the original. Register a "
                    "method of the module (register_forward_hook(self.method)), which is copied with it.",
                    stacklevel=4,
                )


def require_shapes(model: nn.Module) -> None:
    """Raise ValueError if a parameter of a lazy layer has no shape yet.

    Raises:
        ValueError: the message names the parameter.
    """
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if is_lazy(tensor):
            raise ValueError(
                f"{name!r} of a lazy layer has no shape yet: call the network once, model(x[:2]), and then pass it on."
            )


def require_unscripted(model: nn.Module) -> None:
    """Raise TypeError if ``torch.jit`` has compiled a layer with parameters that are trained.

    Raises:
        TypeError: the message names the layer.
    """
    for name, layer in model.named_modules():
        if isinstance(layer, torch.jit.ScriptModule) and any(p.requires_grad for p in layer.parameters()):
            raise TypeError(
                f"{f'layer {name!r}' if name else 'model'} is a scripted module, whose operations cannot be recorded: "
                "pass the module that was scripted."
            )


def require_deterministic_layers(model: nn.Module) -> None:
    """Raise ValueError if the output for one input is random or depends on the other inputs.

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
        ValueError: no parameter requires gradients, or a parameter of a lazy layer has no shape yet.
    """
    require_shapes(model)
    names = tuple(name for name, p in model.named_parameters() if p.requires_grad)
    if not names:
        count = sum(1 for _ in model.parameters())
        raise ValueError(
            f"the network has no trainable parameter ({count} tensors, none with requires_grad=True): "
            "set requires_grad=True on those that the posterior is over."
        )
    return names


def point_estimated(model: nn.Module) -> frozenset[str]:
    """The parameters that a module declares as ``point_estimated``: trained, and left out of posteriors."""
    return frozenset(getattr(model, "point_estimated", ()))


def select(model: nn.Module, wanted: Iterable[str]) -> tuple[str, ...]:
    """The parameters that these parameter or module names denote, in the order of ``named_parameters()``.

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
    """Restore the mode of every layer on exit, also after an exception."""
    modes = [(layer, layer.training) for layer in model.modules()]
    try:
        yield
    finally:
        for layer, training in modes:
            layer.training = training
