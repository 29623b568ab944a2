"""Named parameters, the flat vector, and subsets of them: the only place that flattens.

A :class:`ParameterSpace` says in which order the tensors of a network are flattened into the vector θ (the order of
``named_parameters()``). A :class:`Network` is a private copy of the user's module seen as a function f(θ, x).
"""

import copy
import re
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import accumulate, chain
from typing import Any
from weakref import ref

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy

from osculate.inputs import Inputs, apply, arguments, count, moved, output_of, require_type, returned, tensors
from osculate.registry import choose

#: A function from the module that a call of a network runs to the context in which it runs.
Within = Callable[[nn.Module], AbstractContextManager]
#: Names of the parameters, or of the layers, of an adapter of LoRA or DoRA, as PEFT gives them.
ADAPTERS = ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector")
#: Entries of each referenced parameter that are compared at every call.
PROBED = 16


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
        leaves: Names of parameters that are leaves of a graph in the copy, with the storage of the original.

    Attributes:
        module: The copy.
        tensors: Copied buffers and attributes, by index of the layer and name.
    """

    def __init__(self, original: nn.Module, leaves: Collection[str] = ()) -> None:
        memo: dict[int, Any] = {id(tensor): tensor for tensor in original.parameters()}
        with torch.inference_mode(False):
            for name in leaves:
                parameter = original.get_parameter(name)
                memo[id(parameter)] = nn.Parameter(parameter.detach())
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

    The copy makes a posterior independent of later changes of the user's module; it costs one set of trainable
    parameters and buffers. Frozen parameters (those without ``requires_grad``) that are not in θ are not copied: they
    are the user's own, and a call after they were changed in place is refused. A call works on a second copy, which
    shares all parameters, so that several threads may call one network; as many of these are kept as calls ever ran at
    the same time. Whatever a forward pass writes into buffers and attributes, including lists and dictionaries, is
    undone after the call. What it writes into parameters, as an embedding with ``max_norm`` does, stays in the copy.

    Args:
        model: The trained module. It is copied and left as it is.
        names: The parameters that make up θ; the others are constants.
        device: The device of the copy, by default that of the module.
        dtype: The floating type of the copy, or one for each parameter and buffer by name; by default those of the
            module.
        frozen: Names of the parameters that are not copied, by default those that are frozen; none for a module into
            which states are loaded.

    Attributes:
        frozen: The names of the parameters that are not copied, and not in files.
        module: The copy. Its parameters, buffers and modes may be changed in place.
        space: The tracked parameters.
        device: Device of the parameters.
        dtype: Floating type of the parameters.
        state_dtype: Floating type of sums over data: that of the parameters, but single precision for half precision.
        eps: Relative rounding of the coarsest floating type in the module.
        versions: Number of changes in place of each parameter and buffer of the user's module, when it was copied.
    """

    def __init__(
        self,
        model: nn.Module,
        names: Iterable[str],
        device: torch.device | str | None = None,
        dtype: torch.dtype | Mapping[str, torch.dtype] | None = None,
        frozen: Collection[str] | None = None,
    ) -> None:
        chosen = set(names)
        references = _referable(model, chosen, frozen)
        self.frozen = tuple(references)
        with torch.inference_mode(False):  # otherwise the copies could never have a gradient
            self.module = frozen_copy(model, references)
            if isinstance(dtype, Mapping):
                for name, tensor in chain(self.module.named_parameters(), self.module.named_buffers()):
                    tensor.data = tensor.data.to(dtype.get(name, tensor.dtype))
                dtype = None
            if device is not None or dtype is not None:
                self.module.to(device=device, dtype=dtype)
        tracked = {name: p for name, p in self.module.named_parameters() if name in chosen}
        self.space = ParameterSpace.of(tracked)
        # normalisation layers stay in single precision in many half-precision networks
        self._dtypes = {name: p.dtype for name, p in tracked.items()}
        kinds = {t.dtype for t in chain(self.module.parameters(), self.module.buffers()) if t.is_floating_point()}
        self.eps = max((torch.finfo(kind).eps for kind in kinds), default=torch.finfo().eps)
        # True if a parameter has several names: a look-up at every call costs as much as a small layer
        every = self.module.named_parameters(remove_duplicate=False)
        self._tied = sum(1 for _ in every) > sum(1 for _ in self.module.named_parameters())
        numbers = filter(torch.is_floating_point, chain(self.module.parameters(), self.module.buffers()))
        first = next(numbers, torch.empty(0))  # a module without parameters and buffers
        self.device, self.dtype = first.device, first.dtype
        self.state_dtype = torch.float32 if first.dtype in (torch.float16, torch.bfloat16) else first.dtype
        # those with leaves by the thread whose graphs may still recompute activations with them
        self._idle: dict[int | None, list[_CallCopy]] = {}
        self._references = _References(self.module, references)
        originals = list(chain(model.parameters(), model.buffers()))
        self.versions = tuple(0 if tensor.is_inference() else tensor._version for tensor in originals)
        self._origin = next((ref(p) for name, p in model.named_parameters() if name in chosen), None)
        self._changes_inputs: bool | None = None  # True if it writes into its inputs: known after the first call
        self._written: set[tuple[int, str]] | None = None  # buffers and attributes that it writes into, likewise

    def __getstate__(self) -> dict[str, Any]:
        self.require_same_base()
        return vars(self) | {"_idle": {}, "_references": None, "_origin": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._references = _References(self.module, {})  # a copy has its own parameters

    @property
    def origin(self) -> Tensor | None:
        """The first tracked parameter of the user's module, as long as that exists; a copy of this object has none."""
        return None if self._origin is None else self._origin()

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The tracked parameters at the mode, by name; new tensors with the same storage."""
        return {name: self.module.get_parameter(name).detach() for name in self.space.names}

    @property
    def mean(self) -> Float[Tensor, " P"]:
        """The mode θ*, flat; in single precision for a network in half precision."""
        return self.space.flatten(self.parameters).to(self.state_dtype)

    def tangents(self, v: Shaped[Tensor, "*S P"]) -> dict[str, Tensor]:
        """The flat vector v, or a stack of them, as named tensors of the types of the tracked parameters."""
        return {name: part.to(self._dtypes[name]) for name, part in self.space.unflatten(v).items()}

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
            ValueError: the output is not a tensor with one row for each input, or a frozen parameter of the user's
                module was changed in place.
            TypeError: inputs and parameters are of different floating types.
        """
        values = {name: value.to(self._dtypes[name]) for name, value in (theta or {}).items()}
        return self._called(x, values, within, None)

    def at_leaves(self, x: Inputs, within: Within | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """f(x; θ*), and tensors at θ*, by name, that are leaves of its graph.

        Activations that the module recomputes (``torch.utils.checkpoint``) are recomputed at these leaves, also by a
        backward pass after the call, in the same thread.
        """
        thread = threading.get_ident()
        call_copy = self._call_copy(thread)
        theta: dict[str, Tensor] = {name: call_copy.module.get_parameter(name) for name in self.space.names}
        return self._called(x, {}, within, thread, call_copy), theta

    def _called(
        self,
        x: Inputs,
        values: dict[str, Tensor],
        within: Within | None,
        thread: int | None,
        call_copy: _CallCopy | None = None,
    ) -> Tensor:
        """The output of a call copy with these values of the tracked parameters."""
        self.require_same_base()
        require_type(x, self.dtype)
        x = moved(x, self.device)
        size, given = count(x), tensors(x).values()
        if self._changes_inputs is not False or any(tensor.is_inference() for tensor in given):
            x = apply(torch.clone, x)
        positional, named = arguments(x, self.module)
        call_copy = call_copy or self._call_copy(thread)
        protected: dict[tuple[int, str], Tensor] = {}
        try:
            with within(call_copy.module) if within else nullcontext():
                if call_copy.tensors:
                    protected = call_copy.protect(call_copy.tensors if self._written is None else self._written)
                f = functional_call(call_copy.module, values, positional, named, tie_weights=self._tied)
        except Exception:
            self._end(call_copy, thread)
            raise
        if self._written is None:
            call_copy.give_learned_sizes()
            if not torch.is_inference_mode_enabled():  # where tensors have no version
                self._changes_inputs = any(tensor._version for tensor in tensors(x).values())
                self._written = {key for key, tensor in protected.items() if tensor._version}
        self._end(call_copy, thread)
        f = output_of(f, x)
        if f.ndim == 0 or len(f) != size:
            raise ValueError(returned(f, x))
        return f

    def _call_copy(self, thread: int | None) -> _CallCopy:
        """A copy of the module that no other call uses, with leaves for a thread."""
        idle = self._idle.get(thread, [])
        while idle:
            with suppress(IndexError):  # another thread was faster
                if (call_copy := idle.pop()).follows():
                    return call_copy
        return _CallCopy(self.module, () if thread is None else self.space.names)

    def _end(self, call_copy: _CallCopy, thread: int | None) -> None:
        """Keep a restored copy for another call; a copy that an interrupt left half changed is never returned."""
        whole, written = call_copy.clear()
        if whole:
            if thread not in self._idle:  # copies of threads that have ended serve nobody
                alive = {None, *(each.ident for each in threading.enumerate())}
                self._idle = {key: copies for key, copies in list(self._idle.items()) if key in alive}
            self._idle.setdefault(thread, []).append(call_copy)
        elif self._written is not None:
            self._written = self._written.union(written)

    def require_same_base(self) -> None:
        """Raise ValueError if a frozen parameter, which is the user's own, was changed in place.

        Raises:
            ValueError: the message names the parameter where it is known.
        """
        self._references.require_same()

    def in_state_precision(self) -> "Network":
        """The same network, or a copy in single precision of a network in half precision."""
        return self if self.dtype == self.state_dtype else self.to(dtype=self.state_dtype)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Network":
        """A copy on another device or in another floating type; frozen parameters that stay the same are shared."""
        self.require_same_base()
        return Network(self.module, self.space.names, device, dtype, self.frozen)


class _References:
    """The parameters of a copy that are those of the user's module, and what shows that they were changed.

    Every change in place counts up the version of a tensor, but one by way of ``.data``, as PEFT merges adapters, which
    shows in a few of its entries.

    Args:
        module: The copy.
        originals: Parameters of the user's module by name.
    """

    def __init__(self, module: nn.Module, originals: Mapping[str, Tensor]) -> None:
        mine = ((name, p) for name, p in module.named_parameters() if name in originals)
        shared = {name: p for name, p in mine if p.data_ptr() == originals[name].data_ptr()}  # not moved or converted
        self._versions = [(name, p, p._version) for name, p in shared.items()]
        self._probes: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for p in shared.values():
            if p.is_contiguous():
                probe = torch.as_strided(p.detach(), (min(p.numel(), PROBED),), (max(1, p.numel() // PROBED),))
                self._probes.setdefault((p.device, p.dtype), []).append(probe)
        self._values = self._probed()

    def _probed(self) -> list[Tensor]:
        """The bytes of entries of all parameters, device by device and type by type."""
        return [torch.cat(probes).view(torch.uint8) for probes in self._probes.values()]

    def require_same(self) -> None:
        """Raise ValueError if a parameter was changed.

        Raises:
            ValueError: the message names the parameter.
        """
        changed = next((name for name, p, version in self._versions if p._version != version), None)
        if changed is None and all(map(torch.equal, self._probed(), self._values)):
            return
        raise ValueError(
            f"{f'the frozen parameter {changed!r}' if changed else 'a frozen parameter'} of the network was changed in "
            "place after the posterior was made, which refers to it: fit again, or give osc.laplace or osc.load a copy "
            "of the network (copy.deepcopy) if its base goes on changing."
        )


def _referable(model: nn.Module, chosen: Collection[str], wanted: Collection[str] | None) -> dict[str, nn.Parameter]:
    """The parameters that a copy may share: outside of θ, frozen or wanted, and never written into by a call."""
    renormalised = {
        id(layer.weight)
        for layer in model.modules()
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None
    }
    return {
        name: p
        for name, p in model.named_parameters()
        if name not in chosen
        and (not p.requires_grad if wanted is None else name in wanted)
        and type(p) is nn.Parameter
        and not is_lazy(p)
        and not p.is_inference()
        and id(p) not in renormalised
    }


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


def frozen_copy(model: nn.Module, shared: Mapping[str, nn.Parameter] | None = None) -> nn.Module:
    """A deep copy of a module, without gradients and without compilation.

    Args:
        model: The module.
        shared: Parameters whose memory the copy shares, by name.

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
    memo |= {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in (shared or {}).values()}
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


def adapters(model: nn.Module) -> tuple[str, ...]:
    """The trainable parameters of adapters of LoRA, by the names that PEFT gives them (:data:`ADAPTERS`).

    Raises:
        ValueError: there are none, or all are frozen.
    """
    every = [(name, p) for name, p in model.named_parameters() if not set(ADAPTERS).isdisjoint(name.split("."))]
    names = tuple(name for name, p in every if p.requires_grad)
    if not names and every:
        raise ValueError(
            f"subset='lora': all adapters of the network are frozen, such as {every[0][0]!r}: load it with "
            "is_trainable=True, set requires_grad=True on them, or name them, subset=['*lora_A*', '*lora_B*']."
        )
    if not names:
        raise ValueError(
            f"subset='lora': no parameter of the network belongs to a layer named {', '.join(ADAPTERS)}, as PEFT names "
            "them: name your adapters instead, for example subset=['*adapter*']."
        )
    return names


def is_pattern(name: str) -> bool:
    """True for a name with a wildcard (``*``, ``?`` or ``[…]``, as in file names)."""
    return any(sign in name for sign in "*?[")


def _unmatched(pattern: str, known: list[str]) -> str:
    """The error message for a pattern that matches no name, with near parts of names."""
    parts = dict.fromkeys(part for name in known for part in name.split("."))
    words = [word for word in re.split(r"[^\w]+", pattern) if word and word not in parts]
    near = dict.fromkeys(found for word in words for found in get_close_matches(word, parts, n=3))
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return (
        f"no parameter or module has a name that matches {pattern!r}: {hint}Names are such as "
        f"{', '.join(map(repr, known[:: max(1, len(known) // 3)][:4]))}; '*' stands for any text."
    )


def select(model: nn.Module, wanted: Iterable[str]) -> tuple[str, ...]:
    """The parameters that these parameter or module names denote, in the order of ``named_parameters()``.

    Args:
        model: The module.
        wanted: Names, or patterns of names as of files: ``*`` stands for any text, dots included.

    Raises:
        ValueError: a name is neither a parameter nor a module with parameters, or a pattern matches none.

    >>> select(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), ["1", "0.bias"])
    ('0.bias', '1.weight', '1.bias')
    >>> select(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), ["*.bias"])
    ('0.bias', '1.bias')
    """
    known = [name for name, _ in model.named_parameters()]
    first_name = {id(p): name for name, p in model.named_parameters()}
    every = [(alias, first_name[id(p)]) for alias, p in model.named_parameters(remove_duplicate=False)]
    chosen: set[str] = set()
    for name in wanted:
        members = [first for alias, first in every if alias == name or alias.startswith(f"{name}.")]
        if not members and is_pattern(name):
            members = [first for alias, first in every if fnmatchcase(alias, name) or fnmatchcase(alias, f"{name}.*")]
        if not members and is_pattern(name):
            raise ValueError(_unmatched(name, known))
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
