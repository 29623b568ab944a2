"""Files that are whole at any moment, and the software that a result depends on."""

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("torch", "lightning", "torchmetrics", "numpy", "scikit-learn")


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """A temporary name beside a path, for a file that takes its place when it is complete; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield aside
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file under a temporary name and rename it; folders are made."""
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def versions(optional: Sequence[str] = ()) -> dict[str, str]:
    """The versions that a result depends on, by package, and the platform.

    Args:
        optional: Names of further distributions.

    Returns:
        The version of each, or "not installed".
    """
    found = {}
    for name in (*_PACKAGES, *optional):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return {"python": platform.python_version(), **found, "platform": f"{sys.platform} {platform.machine()}"}
