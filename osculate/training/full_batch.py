"""Training by steps that each take all data: no batches, no learning rate, no optimiser."""

import csv
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from osculate.batches import Data
from osculate.files import write_text
from osculate.inputs import moved
from osculate.methods._base import FullBatch
from osculate.progress import track
from osculate.settings import described
from osculate.tensorfiles import read_tensors, write_tensors
from osculate.training.epochs import Fixed
from osculate.training.identity import identity, require_same_method, require_same_network
from osculate.training.settings import Settings

CHECKPOINT = "last.safetensors"
LOG = "training.csv"
HEADER = "osculate.training"
#: Time from one checkpoint to the next, relative to what writing one takes.
PAUSE = 9.0


History = list[dict[str, int | float]]


def fit(
    method: FullBatch,
    data: Data,
    validation: Data | None,
    settings: Settings,
    *,
    folder: Path | None,
    resume: bool,
    device: str,
    progress: bool,
) -> History:
    """Run the steps and return the history; see :func:`osculate.training.train`."""
    _require_meaning(method, settings)
    held_out = None if validation is None else Fixed(validation, settings.batch_size)
    state = None if folder is None else folder / CHECKPOINT
    history: History = []
    mine = identity(method)
    with _on(method, device):
        found = _read(state, method, mine) if state is not None and resume and state.exists() else None
        size = method.begin(data, settings.epochs, settings.seed)
        if found is not None:
            history = _history(found, method, size, folder)
        log = None if state is None else _Log(state, method, history, size, mine)
        for epoch in track(_steps(method, len(history), settings.epochs), "training", settings.epochs, progress):
            started = time.perf_counter()
            row: dict[str, int | float] = {"epoch": epoch, **method.step()}
            if held_out is not None:
                row["validation_nll"] = _nll(method, held_out)
            history.append({**row, "seconds": round(time.perf_counter() - started, 3)})
            if log is not None:
                log.write(last=epoch == settings.epochs or bool(method.converged))
    return history


def _require_meaning(method: FullBatch, settings: Settings) -> None:
    usual = Settings()
    if changed := [each for each in method.refused if getattr(settings, each) != getattr(usual, each)]:
        words = "means nothing. Leave it" if len(changed) == 1 else "mean nothing. Leave them"
        raise ValueError(
            f"{type(method).__name__} takes steps on all data, so that {', '.join(changed)} {words} out: epochs is the "
            "number of steps."
        )


def _steps(method: FullBatch, done: int, wanted: int) -> Iterator[int]:
    """The numbers of the steps to come, until the method has converged."""
    for epoch in range(done + 1, wanted + 1):
        if bool(method.converged):
            return
        yield epoch


@contextmanager
def _on(method: FullBatch, device: str) -> Iterator[None]:
    """Move the method to a device, and back to its own."""
    own = method.device
    try:
        method.to(own if device == "auto" else torch.device(device))
        yield
    finally:
        method.to(own)


@torch.no_grad()
def _nll(method: FullBatch, held_out: Fixed) -> float:
    """Mean NLL of the held-out data, in nats per datum."""
    where = method.device
    parts: list[Tensor] = [method.log_prob(moved(x, where), y.to(where)).sum() for x, y in held_out]
    return -float(sum(parts)) / held_out.num_data


def _about(method: FullBatch, num_data: int) -> dict[str, Any]:
    """Settings in which a checkpoint must agree with the run that goes on from it."""
    return {"num_data": num_data, **described(method.choices())}


class _Log:
    """The checkpoint and the log of a run, written so often that writing takes a tenth of the time at most.

    Args:
        path: Path of the checkpoint.
        method: Method that is trained.
        history: Rows of the history, a list that grows.
        num_data: N.
        mine: Names of method and network, by :func:`identity`.
    """

    def __init__(self, path: Path, method: FullBatch, history: History, num_data: int, mine: dict[str, str]) -> None:
        self._path, self._method, self._history, self._num_data = path, method, history, num_data
        self._mine = mine
        self._due = 0.0

    def write(self, last: bool) -> None:
        """The state of the run and its log, each aside first, where they are due or the run has ended."""
        began = time.perf_counter()
        if began < self._due and not last:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        about = _about(self._method, self._num_data)
        header = {"history": self._history, "about": about, "identity": self._mine}
        write_tensors(self._path, self._method.checkpoint(), HEADER, header)
        text = StringIO()
        writer = csv.DictWriter(text, fieldnames=list(self._history[0]))
        writer.writeheader()
        writer.writerows(self._history)
        write_text(self._path.parent / LOG, text.getvalue())
        ended = time.perf_counter()
        self._due = ended + PAUSE * (ended - began)


def _read(path: Path, method: FullBatch, mine: dict[str, str]) -> dict[str, Any]:
    """Put the tensors of a checkpoint into the method, and give back the rest."""
    metadata, tensors = read_tensors(path)
    if HEADER not in metadata:
        raise ValueError(f"{str(path)!r} is no checkpoint of this kind of training. Use another folder.")
    found = json.loads(metadata[HEADER])
    theirs = found.get("identity", mine)  # those of version 0.1 have none
    try:
        method.restore(tensors, path)
    except ValueError:
        require_same_method(theirs, mine, path.parent)  # another method explains all other differences
        raise
    require_same_network(theirs, mine, path.parent)
    return found


def _history(found: dict[str, Any], method: FullBatch, num_data: int, folder: Path | None) -> History:
    """The rows of a checkpoint, refused where it belongs to another run."""
    for name, here in _about(method, num_data).items():
        if found["about"].get(name) != here:
            raise ValueError(
                f"the checkpoint in {folder} was made with {name}={found['about'].get(name)}, and this run has "
                f"{name}={here}. Resume with the same settings and data, or use another folder."
            )
    return found["history"]
