"""The one way to turn a name that a user typed into an object."""

from collections.abc import Mapping
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
    if isinstance(name, str) and name in table:
        return table[name]
    near = get_close_matches(str(name), list(table), n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise ValueError(f"unknown {kind} {name!r}{hint}; known: {', '.join(map(repr, table))}")
