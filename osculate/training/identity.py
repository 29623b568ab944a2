"""The identity of a run, which its checkpoints carry: method and network."""

import re
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path

from osculate.methods._base import Method


def identity(method: Method) -> dict[str, str]:
    """The method by its class, and the network as it prints, but for addresses in memory."""
    return {"method": type(method).__name__, "network": re.sub(r" at 0x[0-9a-fA-F]+", "", repr(method.model))}


def require_same_method(found: Mapping[str, str], here: Mapping[str, str], folder: Path | None) -> None:
    """Refuse a checkpoint of another method.

    Raises:
        ValueError: another method; the message has both names.
    """
    if found["method"] != here["method"]:
        raise ValueError(
            f"the checkpoint in {folder} is of {found['method']}, not {here['method']}. Resume with the same method, "
            "or use another folder."
        )


def require_same_network(found: Mapping[str, str], here: Mapping[str, str], folder: Path | None) -> None:
    """Refuse a checkpoint of a network that prints differently: shapes do not tell activations apart.

    Raises:
        ValueError: another network; the message has the first line that differs.
    """
    lines = zip_longest(found["network"].splitlines(), here["network"].splitlines(), fillvalue="")
    for theirs, mine in lines:
        if theirs != mine:
            raise ValueError(
                f"the checkpoint in {folder} belongs to another network: {theirs.strip()!r} there is {mine.strip()!r} "
                "here. Resume with the same network, or use another folder."
            )
