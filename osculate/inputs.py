"""Inputs of a network: one tensor, several in a tuple, or named ones in a mapping, all with the batch as first axis."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

#: What a network is called with: ``model(x)``, ``model(*x)`` for a tuple or list, and for a mapping ``model(**x)``, or
#: ``model(x)`` if ``forward`` has one argument, and none of these names.
Inputs: TypeAlias = Tensor | tuple | list | Mapping

#: Largest number of parts of an output that an error message lists.
LISTED = 8


def apply(function: Callable[[Tensor], Tensor], x: Any) -> Any:
    """The same inputs with a function applied to each tensor; other objects stay as they are."""
    if isinstance(x, Tensor):
        return function(x)
    if isinstance(x, Mapping):
        return {name: apply(function, value) for name, value in x.items()}
    if isinstance(x, tuple | list):
        return tuple(apply(function, value) for value in x)
    return x


def tensors(x: Any) -> dict[str, Tensor]:
    """Every tensor of the inputs by its path, "" for a single tensor.

    >>> list(tensors({"ids": torch.zeros(2), "more": (torch.ones(2),)}))
    ['ids', 'more.0']
    """
    if isinstance(x, Tensor):
        return {"": x}
    parts = x.items() if isinstance(x, Mapping) else enumerate(x) if isinstance(x, tuple | list) else ()
    return {
        f"{name}.{inner}" if inner else str(name): tensor
        for name, value in parts
        for inner, tensor in tensors(value).items()
    }


def copied(array: np.ndarray) -> Tensor:
    """A copy of an array as a tensor, with the order of bytes of this machine.

    Raises:
        TypeError: it holds no real numbers.
    """
    if array.dtype.kind not in "biuf":
        raise TypeError(f"an array of type {array.dtype} holds no real numbers: convert it, or encode its values.")
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))


def from_arrays(x: Any, dtype: torch.dtype | None = None) -> Any:
    """The same inputs with tensors in place of NumPy arrays; tensors and other objects stay as they are.

    Args:
        x: Inputs.
        dtype: Floating type of arrays of real numbers; None leaves their own.

    Raises:
        TypeError: an array holds no real numbers.

    >>> from_arrays(np.zeros(2), torch.float32)
    tensor([0., 0.])
    """
    if isinstance(x, np.ndarray):
        return copied(x) if dtype is None else as_floating(copied(x), dtype)
    if isinstance(x, Mapping) and any(isinstance(value, np.ndarray) for value in x.values()):
        return {name: from_arrays(value, dtype) for name, value in x.items()}
    if isinstance(x, tuple | list) and any(isinstance(value, np.ndarray) for value in x):
        return tuple(from_arrays(value, dtype) for value in x)
    return x


def floating_type(module: nn.Module) -> torch.dtype | None:
    """The type of the first parameter of floating type, if there is one."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), None)


def needs_gradient(x: Any) -> bool:
    """True if derivatives by a tensor of the inputs are asked for."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors(x).values())


def count(x: Any) -> int:
    """N, the length of the first axis.

    Raises:
        ValueError: there is no tensor, or they differ in length.

    >>> count((torch.zeros(3, 2), torch.zeros(3)))
    3
    """
    found = tensors(x)
    lengths = {name: len(tensor) if tensor.ndim else None for name, tensor in found.items()}
    if not lengths or None in lengths.values() or len(set(lengths.values())) > 1:
        shapes = ", ".join(f"{name or 'x'} {tuple(tensor.shape)}" for name, tensor in found.items()) or "no tensor"
        raise ValueError(f"the inputs need the batch as first axis of every tensor, with one length: got {shapes}.")
    return next(iter(lengths.values()))  # type: ignore[return-value]


def take(x: Any, rows: slice | Tensor) -> Any:
    """The data at these indices."""
    return apply(lambda tensor: tensor[rows], x)


def moved(x: Any, device: torch.device) -> Any:
    """The same inputs on another device."""
    return apply(lambda tensor: tensor.to(device), x)


def concatenate(parts: list[Any]) -> Any:
    """Several batches as one."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(parts)
    if isinstance(first, Mapping):
        return {name: concatenate([part[name] for part in parts]) for name in first}
    if isinstance(first, tuple | list):
        return tuple(concatenate(list(each)) for each in zip(*parts, strict=True))
    return first


def floating(x: Inputs, dtype: torch.dtype) -> Inputs:
    """Inputs with their floating tensors in this type; integer tensors as they are."""
    return apply(partial(as_floating, dtype=dtype), x)


def as_floating(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A floating tensor in this type; an integer tensor as it is."""
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def call(module: nn.Module, x: Any, theta: Mapping[str, Tensor] | None = None) -> Any:
    """The output of a module for these inputs, at its own parameters or others; the logits of a Hugging Face model.

    Raises:
        ValueError: the output is not a tensor.
        TypeError: the module does not accept the floating type of the inputs.
    """
    positional, named = arguments(x, module)
    try:
        f = module(*positional, **named) if theta is None else called_at(module, theta, positional, named)
    except (RuntimeError, ValueError):
        require_type(x, floating_type(module))
        raise
    return output_of(f, x)


def drawn_outputs(
    module: nn.Module, x: Any, theta: Mapping[str, Tensor] | None = None
) -> tuple[Tensor, Tensor | float]:
    """The outputs in training, and the term that training subtracts from log p(y|f) of each datum.

    A module with ``draws_codes`` returns both for ``draw=x``: the outputs for a drawn code, and the divergence of the
    code's distribution from its prior. Any other module returns its outputs, and nothing is subtracted.
    """
    if not getattr(module, "draws_codes", False):
        return call(module, x, theta), 0.0
    return module(draw=x) if theta is None else called_at(module, theta, (), {"draw": x})


def called_at(module: nn.Module, theta: Mapping[str, Tensor], positional: tuple, named: Mapping[str, Any]) -> Any:
    """Result of a module at other parameters, given by the names of ``named_parameters()``.

    Parameters that layers share change in all of them. A layer with several names is changed once: torch itself would
    not put back its own parameters.
    """
    names: dict[int, str] = {}  # the first name of each parameter
    values = dict(theta)
    for path, layer in module.named_modules():
        for attribute, parameter in layer.named_parameters(prefix=path, recurse=False):
            first = names.setdefault(id(parameter), attribute)
            if first in theta:
                values[attribute] = theta[first]
    return functional_call(module, values, positional, dict(named), tie_weights=False)


def output_of(f: Any, x: Any) -> Tensor:
    """The tensor that a network returned for these inputs, or the logits of a Hugging Face model.

    Raises:
        ValueError: it returned something else.
    """
    f = getattr(f, "logits", f)
    if not isinstance(f, Tensor):
        raise ValueError(returned(f, x))
    return f


def part_of(f: Any, output: int | str) -> Tensor:
    """A part of what a network returned: an entry of a sequence or mapping, an attribute, or a part of a part.

    Raises:
        ValueError: there is no such part, or it is not a tensor of floating type.

    >>> part_of({"aux": (torch.zeros(1), torch.ones(2))}, "aux.1")
    tensor([1., 1.])
    """
    try:
        found = _part(f, str(output))
    except (LookupError, AttributeError):
        way_out = "leave output out" if isinstance(f, Tensor) else "name one of these"
        raise ValueError(f"the network returned {described(f)}, and no output={output!r}: {way_out}.") from None
    if not isinstance(found, Tensor) or not found.is_floating_point():
        raise ValueError(
            f"output={output!r} is {described(found)}, and f must be one tensor of floating type: name another part. "
            f"The network returned {described(f)}."
        )
    return found


def _part(f: Any, name: str) -> Any:
    if isinstance(f, Tensor):
        raise LookupError
    entries = {str(key): value for key, value in f.items()} if isinstance(f, Mapping) else {}
    if name in entries:
        return entries[name]
    if isinstance(f, tuple | list) and name.removeprefix("-").isdigit():
        return f[int(name)]
    first, _, rest = name.partition(".")
    if rest:
        return _part(_part(f, first), rest)
    if isinstance(f, Mapping):
        raise LookupError
    return getattr(f, name)


def parts(f: Any) -> dict[str, Tensor]:
    """The tensors in what a network returned, by the names that :func:`part_of` takes."""
    return tensors(f if isinstance(f, tuple | list | Mapping) else getattr(f, "__dict__", {}))


def described(f: Any) -> str:
    """A returned value in words: one tensor, or its type and the tensors in it."""
    if isinstance(f, Tensor):
        return f"one tensor, {_size(f)}"
    return f"{type(f).__name__} with {_listed(f)}"


def _listed(f: Any) -> str:
    found = [f"output={_key(name)} {_size(tensor)}" for name, tensor in parts(f).items()]
    if len(found) > LISTED:
        found[LISTED:] = [f"{len(found) - LISTED} more"]
    return ", ".join(found) or "no tensors"


def _key(name: str) -> str:
    return name if name.isdigit() else repr(name)


def _size(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def returned(f: Any, x: Any) -> str:
    """The error message for an output that is not one tensor with a row for each input."""
    what = tuple(f.shape) if isinstance(f, Tensor) else type(f).__name__
    message = (
        f"the network returned {what} for {count(x)} inputs; it must return one tensor whose first axis is the batch "
        "(or an object with such a tensor as `logits`). "
    )
    if not isinstance(f, Tensor) and (found := parts(f)):
        name = _key(next(iter(found)))
        message += (
            f"Name one of its parts, {_listed(f)}, as in osc.laplace(…, output={name}); methods and posteriors take "
            f"osc.networks.Output(model, {name}) in place of the model. "
        )
    return message + "Several outputs of one likelihood can be concatenated with torch.cat in a small module around it."


def require_type(x: Any, dtype: torch.dtype | None) -> None:
    """Raise TypeError if the floating type of the inputs differs from that of the parameters.

    Raises:
        TypeError: a tensor of the inputs has another floating type.
    """
    for name, tensor in tensors(x).items():
        if dtype is not None and tensor.is_floating_point() and tensor.dtype != dtype:
            raise TypeError(
                f"the inputs {name + ' ' if name else ''}are {tensor.dtype}, the network's parameters {dtype}. Convert "
                f"one of them, for example with x.to({dtype})."
            )


def arguments(x: Any, module: nn.Module) -> tuple[tuple, dict[str, Any]]:
    """Positional and keyword arguments that a module gets for these inputs."""
    if isinstance(x, Mapping):
        return ((dict(x),), {}) if takes_mapping(module, x) else ((), dict(x))
    return (tuple(x), {}) if isinstance(x, tuple | list) else ((x,), {})


def takes_mapping(module: nn.Module, x: Mapping) -> bool:
    """True if ``forward`` has a single argument without a default, and no argument with a name of the mapping."""
    module = getattr(module, "_orig_mod", module)  # torch.compile hides the arguments
    parameters = inspect.signature(module.forward).parameters
    free = [p for p in parameters.values() if p.default is p.empty]
    single = len(free) == 1 and free[0].kind in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    variable = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    return single and not variable and not parameters.keys() & x.keys()
