"""Look-up of objects by the names that a user types."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Any, TypeVar

T = TypeVar("T")


def lookup(kind: str, name: str, table: Mapping[str, T]) -> T:
    """Return ``table[name]``; raise an error with the known names for any other.

    Args:
        kind: Word for the error, such as "structure" or "link".
        name: Name that the user typed.
        table: Known names with their values.

    Raises:
        ValueError: the name is not in the table; the message names it, the known names and the nearest one.

    >>> lookup("link", "probit", {"mc": 1, "probit": 2})
    2
    """
    return table[choose(kind, name, table)]


def choose(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the name if it is known; raise an error with the known names for any other.

    Raises:
        ValueError: as :func:`lookup`.

    >>> choose("link", "probits", ["mc", "probit"])
    Traceback (most recent call last):
    ...
    ValueError: unknown link 'probits' (did you mean 'probit'?); known: 'mc', 'probit'.
    """
    names = list(known)
    if name in names:
        return name
    near = get_close_matches(str(name), names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise ValueError(f"unknown {kind} {name!r}{hint}; known: {', '.join(map(repr, names))}.")


def made(kind: str, thing: Any, table: Mapping[str, Callable[[], Any]], base: type | UnionType) -> Any:
    """Return an object of a class, made from the table if it is given by name.

    Args:
        kind: Word for the error.
        thing: Object, or a name from the table.
        table: Known names, each with a function that makes the object.
        base: Class of the object, or a union of classes.

    Raises:
        ValueError: an unknown name.
        TypeError: another object, or a class in place of one.

    >>> made("number", "one", {"one": lambda: 1}, int), made("number", 2, {"one": lambda: 1}, int)
    (1, 2)
    """
    if isinstance(thing, str):
        return lookup(kind, thing, table)()
    if not isinstance(thing, base):
        raise TypeError(
            f"{kind} must be one of the names {', '.join(map(repr, table))}, or an object (not a class) such as "
            f"{next(iter(table.values()))()!r}; got {thing!r}."
        )
    return thing
