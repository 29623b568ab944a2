"""Comparison and description of objects by their class and settings."""

from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from hashlib import sha256
from inspect import isroutine
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_flatten

#: Largest number of entries of a tensor that is written in full.
LARGE = 100


def differences(one: object, other: object, apart_from: Collection[str] = ()) -> str:
    """Describe the first difference of two objects; "" if they have one class and equal settings.

    Settings are the fields of a dataclass and the attributes of an object (for a dataclass only public ones, as private
    attributes hold later state). Cached properties are ignored. Tensors are compared by value on any device; values
    that cannot be compared count as different.

    Args:
        one: Object, such as a likelihood.
        other: Object that it is compared with.
        apart_from: Names of settings that may differ.

    >>> import osculate as osc
    >>> differences(osc.likelihoods.StudentT(4.0, 1.0), osc.likelihoods.StudentT(4.0, 2.0))
    'scale=1.0 against 2.0'
    """
    if one is other:
        return ""
    if type(one) is not type(other):
        return f"class {_shown(type(one))} against {_shown(type(other))}"
    mine, theirs = ({k: v for k, v in _settings(each).items() if k not in apart_from} for each in (one, other))
    name = first_difference(mine, theirs)
    return f"{name}={_shown(mine.get(name))} against {_shown(theirs.get(name))}" if name else ""


def first_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The first name whose value differs or is missing in one of two mappings; "" if they are equal."""
    names = {**one, **other}
    return next((n for n in names if n not in one or n not in other or not _equal(one[n], other[n])), "")


def described(thing: object) -> Any:
    """Describe an object in plain values for a file: its class and settings, the numbers of small tensors, a digest of
    large ones.

    A field whose metadata says ``{"later": True}`` is described only where it differs from its default: files that were
    written before it existed mean the default.

    >>> import osculate as osc
    >>> described({"likelihood": osc.likelihoods.StudentT(4.0, 1.0)})
    {'likelihood': {'class': 'StudentT', 'df': 4.0, 'scale': 1.0}}
    """
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    if isinstance(thing, Tensor) and thing.numel() > LARGE:
        content = thing.detach().double().cpu().numpy().tobytes()
        return f"{tuple(thing.shape)} {sha256(content).hexdigest()[:16]}"
    if hasattr(thing, "tolist"):  # of tensors and arrays
        return thing.tolist()
    if isinstance(thing, Mapping):
        return {str(name): described(value) for name, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [described(value) for value in thing]
    if isinstance(thing, type) or isroutine(thing):
        return thing.__qualname__
    declared = fields(thing) if is_dataclass(thing) else ()
    later = {field.name: field.default for field in declared if field.metadata.get("later")}
    found = {n: described(value) for n, value in _settings(thing).items() if n not in later or value != later[n]}
    return {"class": type(thing).__name__, **found}


def _settings(thing: object) -> dict[str, Any]:
    declared = is_dataclass(thing)
    found = {field.name: getattr(thing, field.name) for field in fields(thing)} if declared else {}  # type: ignore[arg-type]
    for name, value in vars(thing).items() if hasattr(thing, "__dict__") else ():
        remembered = isinstance(getattr(type(thing), name, None), cached_property)
        if not remembered and not (declared and name.startswith("_")):
            found[name] = value
    return found


def _equal(a: object, b: object) -> bool:
    mine, form = tree_flatten(a)
    theirs, other_form = tree_flatten(b)

    def same(x: Any, y: Any) -> bool:
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            return x.shape == y.shape and bool((x == y.to(x.device)).all())
        try:
            return bool(x == y)
        except (TypeError, ValueError, RuntimeError):  # arrays, and tensors against something else
            return False

    return form == other_form and all(x is y or same(x, y) for x, y in zip(mine, theirs, strict=True))


def _shown(value: object) -> str:
    if isinstance(value, type):
        return value.__name__
    text = repr(value)
    return text if len(text) <= 80 else f"another {type(value).__name__}"
