"""What the reader of a data set is asked for."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Request:
    """What the reader of a data set is asked for.

    Args:
        folder: the only folder to look into, or None for the usual places.
        split: which of the set's own splits, counted from 0.
        splits: the family of splits, "standard", "gap" or "random".
        seed: for what is drawn or split at random.
        download: whether a file that is not here may be downloaded.
    """

    folder: str | Path | None = None
    split: int = 0
    splits: str = "standard"
    seed: int = 0
    download: bool = True
