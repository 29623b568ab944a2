"""The one way to turn a name that a user typed into an object."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

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
