"""Training by full-batch steps, without batches, learning rate or optimiser."""

import json
import time
from pathlib import Path
from typing import Any

import torch

from osculate.batches import Data
from osculate.inputs import moved
from osculate.methods._base import FullBatch
from osculate.progress import track
from osculate.settings import described
from osculate.tensorfiles import read_tensors, write_tensors
from osculate.training.epochs import Fixed
from osculate.training.runs import identity, require_same_method, require_same_network, write_log
from osculate.training.settings import Settings

CHECKPOINT = "last.safetensors"
HEADER = "osculate.training"
#: Time between checkpoints, relative to the time to write one.
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
    usual = Settings()
    if changed := [each for each in method.refused if getattr(settings, each) != getattr(usual, each)]:
        words = "has no effect. Leave it" if len(changed) == 1 else "have no effect. Leave them"
        raise ValueError(
            f"{type(method).__name__} takes steps on all data, so that {', '.join(changed)} {words} out: epochs is the "
            "number of steps."
        )
    held_out = None if validation is None else Fixed(validation, settings.batch_size)
    state = None if folder is None else folder / CHECKPOINT
    history: History = []
    run_identity, device_before = identity(method), method.device
    try:
        method.to(device_before if device == "auto" else torch.device(device))
        found = _read(state, method, run_identity) if state is not None and resume and state.exists() else None
        size = method.begin(data, settings.epochs, settings.seed)
        if found is not None:
            history = _history(found, method, size, folder)
        log = None if state is None else _Log(state, method, history, size, run_identity)
        for epoch in track(range(len(history) + 1, settings.epochs + 1), "training", settings.epochs, progress):
            if bool(method.converged):
                break
            started = time.perf_counter()
            row: dict[str, int | float] = {"epoch": epoch, **method.step()}
            if held_out is not None:
                where = method.device
                with torch.no_grad():
                    parts = [method.log_prob(moved(x, where), y.to(where)).sum() for x, y in held_out]
                row["validation_nll"] = -float(sum(parts)) / held_out.num_data
            history.append({**row, "seconds": round(time.perf_counter() - started, 3)})
            if log is not None:
                log.write(last=epoch == settings.epochs or bool(method.converged))
    finally:
        method.to(device_before)
    return history


def _about(method: FullBatch, num_data: int) -> dict[str, Any]:
    """Settings that must be the same in a checkpoint and the run that resumes from it."""
    return {"num_data": num_data, **described(method.choices())}


class _Log:
    """The checkpoint and the log of a run; writing them takes at most a tenth of the time.

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
        """Write the state of the run and its log, if they are due or the run has ended."""
        began = time.perf_counter()
        if began < self._due and not last:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        about = _about(self._method, self._num_data)
        header = {"history": self._history, "about": about, "identity": self._mine}
        write_tensors(self._path, self._method.checkpoint(), HEADER, header)
        write_log(self._path.parent, self._history)
        ended = time.perf_counter()
        self._due = ended + PAUSE * (ended - began)


def _read(path: Path, method: FullBatch, mine: dict[str, str]) -> dict[str, Any]:
    """Restore the tensors of a checkpoint into the method, and return the header."""
    metadata, tensors = read_tensors(path)
    if HEADER not in metadata:
        raise ValueError(f"{str(path)!r} is not a checkpoint of this kind of training. Use another folder.")
    found = json.loads(metadata[HEADER])
    theirs = found.get("identity", mine)  # checkpoints of version 0.1 have no identity
    try:
        method.restore(tensors, path)
    except ValueError:
        require_same_method(theirs, mine, path.parent)  # another method explains all other differences
        raise
    require_same_network(theirs, mine, path.parent)
    return found


def _history(found: dict[str, Any], method: FullBatch, num_data: int, folder: Path | None) -> History:
    """Return the rows of a checkpoint; raise ValueError if it belongs to another run."""
    for name, value in _about(method, num_data).items():
        if found["about"].get(name) != value:
            raise ValueError(
                f"the checkpoint in {folder} was made with {name}={found['about'].get(name)}, and this run has "
                f"{name}={value}. Resume with the same settings and data, or use another folder."
            )
    return found["history"]
