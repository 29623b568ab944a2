"""The request that a reader of data sets answers."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Request:
    """The request that a reader of data sets answers.

    Args:
        folder: the only folder to look into, or None for the usual places.
        split: number of the set's own split, counted from 0.
        splits: the family of splits, "standard", "gap" or "random".
        seed: seed of random splits and draws.
        download: allow missing files to be downloaded.
    """

    folder: str | Path | None = None
    split: int = 0
    splits: str = "standard"
    seed: int = 0
    download: bool = True
