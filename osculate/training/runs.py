"""The identity of a run, which is stored in its checkpoints, and its log."""

import csv
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from itertools import zip_longest
from pathlib import Path

from osculate.files import write_text
from osculate.methods._base import Method

#: File name of the log, which has a row for each epoch.
LOG = "training.csv"


def identity(method: Method) -> dict[str, str]:
    """The class name of the method, and the printed network without memory addresses."""
    return {"method": type(method).__name__, "network": re.sub(r" at 0x[0-9a-fA-F]+", "", repr(method.model))}


def require_same_data(saved: Mapping[str, str], mine: Mapping[str, str], folder: Path | None) -> None:
    """Raise ValueError if a checkpoint was made with other data, as far as these can be told apart.

    Args:
        saved: Fingerprint of the data of the checkpoint; empty in those of version 0.1.
        mine: Fingerprint of the data of this run.
        folder: Folder of the run.

    Raises:
        ValueError: sizes, types, or a few rows differ.
    """
    for name in mine:
        if name in saved and saved[name] != mine[name]:
            what = "other values in some rows" if name == "rows" else f"{saved[name]} in place of {mine[name]}"
            raise ValueError(
                f"the checkpoint in {folder} was made with other data: {what}. Resume with the same data, or use "
                "another folder."
            )


@contextmanager
def same_run(found: Mapping[str, str], expected: Mapping[str, str], folder: Path | None) -> Iterator[None]:
    """Raise ValueError if a checkpoint is of another method, or its network prints differently.

    Another method explains any other difference for which the block raises ValueError. Networks with equal shapes,
    which the block accepts, may still have different activations.
    """
    try:
        yield
    except ValueError as error:
        if found["method"] != expected["method"]:
            raise ValueError(
                f"the checkpoint in {folder} is of {found['method']}, not {expected['method']}. Resume with the same "
                "method, or use another folder."
            ) from error
        raise
    lines = zip_longest(found["network"].splitlines(), expected["network"].splitlines(), fillvalue="")
    for line, expected_line in lines:
        if line != expected_line:
            raise ValueError(
                f"the checkpoint in {folder} belongs to another network: {line.strip()!r} in place of "
                f"{expected_line.strip()!r}. Resume with the same network, or use another folder."
            )


def write_log(folder: Path, rows: list[dict[str, int | float]]) -> None:
    """Write the history as CSV; a method may add columns in later epochs."""
    text = StringIO()
    writer = csv.DictWriter(text, fieldnames=list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / LOG, text.getvalue())
