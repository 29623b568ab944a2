"""Loggers of a training by name, and the checks of what a user passes to Lightning."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger

from osculate.checks import require_library
from osculate.registry import lookup
from osculate.training.settings import LOGGERS


def _tensorboard(folder: Path) -> Logger:
    require_library("tensorboard", "logs for TensorBoard")
    return TensorBoardLogger(folder, name="tensorboard")


#: Functions of a folder, by name; a resumed run writes its next version.
_MAKERS: Mapping[str, Callable[[Path], Logger]] = {
    "csv": lambda folder: CSVLogger(folder, name="csv"),
    "tensorboard": _tensorboard,
}


def logger_of(logger: Any, folder: Path | None) -> Logger | None:
    """The logger for a name, or the user's own.

    Args:
        logger: Name of :data:`osculate.training.settings.LOGGERS`, a logger of Lightning, or None.
        folder: Folder of the run, for a logger by name.

    Raises:
        ValueError: the name is unknown, or there is no folder.
        TypeError: something else.
        ImportError: the library of the logger is not installed.
    """
    if logger is None or isinstance(logger, Logger):
        return logger
    if not isinstance(logger, str):
        raise TypeError(
            f"logger must be one of {', '.join(map(repr, LOGGERS))} or a logger of Lightning, got {logger!r}."
        )
    make = lookup("logger", logger, _MAKERS)
    if folder is None:
        raise ValueError(f"logger={logger!r} writes into the folder of the run: pass folder=... too.")
    return make(folder)


def require_callbacks(callbacks: Sequence[Any]) -> list[Callback]:
    """The callbacks as a list; raise TypeError for what is none."""
    for each in callbacks:
        if not isinstance(each, Callback):
            raise TypeError(
                f"callbacks must be objects of lightning.pytorch.Callback, got {each!r}: derive its class from it."
            )
    return list(callbacks)
