"""The one way to turn a name that a user typed into an object."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

T = TypeVar("T")


def lookup(kind: str, name: str, table: Mapping[str, T]) -> T:
    """Return ``table[name]``, or say which names are known.

    Args:
        kind: what the name stands for, in words for the error ("structure", "link").
        name: what the user typed.
        table: the known names and what they mean.

    Raises:
        ValueError: the name is not in the table; the message names it, the known names and the nearest one.

    >>> lookup("link", "probit", {"mc": 1, "probit": 2})
    2
    """
    return table[choose(kind, name, table)]


def choose(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the name if it is known, or say which names are.

    Raises:
        ValueError: as :func:`lookup`.

    >>> choose("link", "probits", ["mc", "probit"])
    Traceback (most recent call last):
    ...
    ValueError: unknown link 'probits' (did you mean 'probit'?); known: 'mc', 'probit'
    """
    names = list(known)
    if name in names:
        return name
    near = get_close_matches(str(name), names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise ValueError(f"unknown {kind} {name!r}{hint}; known: {', '.join(map(repr, names))}")


def made(kind: str, thing: Any, table: Mapping[str, Callable[[], Any]], base: type) -> Any:
    """An object of a class, or the one that a name stands for.

    Args:
        kind: what it is, in words for the error.
        thing: an object, or a name from the table.
        table: the known names, and what makes an object for each.
        base: what an object must be an instance of.

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
