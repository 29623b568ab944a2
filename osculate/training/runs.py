"""The identity of a run, which its checkpoints carry, and the log beside them."""

import csv
import re
from collections.abc import Mapping
from io import StringIO
from itertools import zip_longest
from pathlib import Path

from osculate.files import write_text
from osculate.methods._base import Method

#: The file of the log, a row for each epoch.
LOG = "training.csv"


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


def write_log(folder: Path, rows: list[dict[str, int | float]]) -> None:
    """Write the history as CSV; a method may add columns in later epochs."""
    text = StringIO()
    writer = csv.DictWriter(text, fieldnames=list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / LOG, text.getvalue())
