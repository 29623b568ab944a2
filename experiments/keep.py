"""Measurements kept one by one, so that an interrupted reproduction goes on where it was."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from osculate.files import write_text
from osculate.tensorfiles import fill, network_tensors, read_tensors, write_tensors

#: What a measurement took.
TOOK = "seconds"
#: What was measured of a network, beside its weights.
HEADER = "osculate_cell"


class Keep:
    """What was measured, in a folder from which an interrupted run takes it.

    Attributes:
        seconds: what everything took that was asked for so far, in earlier runs too.

    Args:
        folder: where the files are; empty for none.
        version: of what they hold; another number where the measurement has changed.
    """

    def __init__(self, folder: str, version: int = 1) -> None:
        self._folder, self._version, self.seconds = folder, version, 0.0

    def __call__(
        self, kind: str, where: Sequence[str | int], about: Sequence[Any], measure: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The values, from a file where there is one.

        Args:
            kind: of measurement.
            where: what was measured, in words and numbers that a file can be named after.
            about: everything else that the values depend on.
            measure: gives them.
        """
        path = self._path(kind, where, about)
        if self._folder and path.exists():
            values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        else:
            started = time.perf_counter()
            values = dict(measure())
            values[TOOK] = round(time.perf_counter() - started, 2)
            if self._folder:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, json.dumps(values))
        self.seconds += values.pop(TOOK, 0.0)
        return values

    def network(
        self,
        kind: str,
        where: Sequence[str | int],
        about: Sequence[Any],
        network: nn.Module,
        train: Callable[[], Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Train a network, or fill it with the weights that are kept; what the training gave.

        Args:
            kind: of measurement.
            where: what was trained, in words and numbers that a file can be named after.
            about: everything else that the weights depend on.
            network: is changed in place.
            train: trains it, and says what it measured.
        """
        path = self._path(kind, where, about).with_suffix(".safetensors")
        if self._folder and path.exists():
            metadata, tensors = read_tensors(path)
            fill(network, tensors, path)
            values: dict[str, Any] = json.loads(metadata[HEADER])
        else:
            started = time.perf_counter()
            values = dict(train())
            values[TOOK] = round(time.perf_counter() - started, 2)
            if self._folder:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_tensors(path, network_tensors(network), HEADER, values)
        self.seconds += values.pop(TOOK, 0.0)
        return values

    def folder(self, kind: str, where: Sequence[str | int], about: Sequence[Any]) -> Path | None:
        """Where a measurement can keep the checkpoints of its training; None where nothing is kept."""
        return self._path(kind, where, about).with_suffix("") if self._folder else None

    def _path(self, kind: str, where: Sequence[str | int], about: Sequence[Any]) -> Path:
        digest = hashlib.sha256(json.dumps([self._version, *about]).encode()).hexdigest()[:8]
        return Path(self._folder) / f"{kind}-{'-'.join(map(str, where))}-{digest}.json"
