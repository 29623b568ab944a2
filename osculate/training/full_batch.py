"""Training by full-batch steps, without batches, learning rate or optimiser."""

import time
from pathlib import Path
from typing import Any

import torch

from osculate.batches import Data, Fixed, fingerprint
from osculate.distributed import ALONE, Group
from osculate.inputs import moved
from osculate.methods._base import FullBatch
from osculate.progress import track
from osculate.schema import many, mapping, require_header
from osculate.settings import described
from osculate.tensorfiles import header_of, read_tensors, write_tensors
from osculate.training.runs import identity, require_same_data, same_run, write_log
from osculate.training.settings import Settings

CHECKPOINT = "last.safetensors"
HEADER = "osculate.training"
#: Time between checkpoints, relative to the time to write one, so that writing takes at most a tenth of the time.
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
    part: Group = ALONE,
    logger: Any = None,
) -> History:
    """Run the steps and return the history; see :func:`osculate.training.train`, and the loop for ``part``.

    ``logger`` is one of Lightning, or None.
    """
    usual = Settings()
    if changed := [each for each in method.refused if getattr(settings, each) != getattr(usual, each)]:
        words = "has no effect. Leave it" if len(changed) == 1 else "have no effect. Leave them"
        raise ValueError(
            f"{type(method).__name__} takes steps on all data, so that {', '.join(changed)} {words} out: epochs is the "
            "number of steps."
        )
    held_out = None if validation is None else Fixed(validation, settings.batch_size)
    state = None if folder is None else part.own(folder / CHECKPOINT)
    due = 0.0
    run_identity, device_before = identity(method), method.device
    try:
        method.to(device_before if device == "auto" else torch.device(device))
        found = _read(state, method, run_identity) if state is not None and resume and state.exists() else {}
        size = method.begin(data, settings.epochs, settings.seed)
        about = {"num_data": size, **described(method.choices())}
        for name, value in about.items() if found else ():
            if found["about"].get(name) != value:
                raise ValueError(
                    f"the checkpoint in {folder} was made with {name}={found['about'].get(name)}, and this run has "
                    f"{name}={value}. Resume with the same settings and data, or use another folder."
                )
        require_same_data(found.get("data", {}), fingerprint(data), folder)
        history: History = found["history"] if found else []
        header = {"history": history, "about": about, "identity": run_identity, "data": fingerprint(data)}
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
            if logger is not None:
                logger.log_metrics({name: float(value) for name, value in history[-1].items()}, epoch)
            began = time.perf_counter()
            if state is not None and (began >= due or epoch == settings.epochs or bool(method.converged)):
                write_tensors(state, method.checkpoint(), HEADER, header)
                if part.rank == 0:
                    write_log(state.parent, history)
                ended = time.perf_counter()
                due = ended + PAUSE * (ended - began)
    finally:
        method.to(device_before)
    if logger is not None:
        logger.finalize("success")
    return history


def _read(path: Path, method: FullBatch, mine: dict[str, str]) -> dict[str, Any]:
    """Restore the tensors of a checkpoint into the method, and return the header."""
    metadata, tensors = read_tensors(path)
    if HEADER not in metadata:
        raise ValueError(f"{str(path)!r} is not a checkpoint of this kind of training. Use another folder.")
    found = header_of(path, metadata, HEADER)
    require_header(path, found, {"history": many(mapping()), "about": mapping()})
    theirs = found.get("identity", mine)  # checkpoints of version 0.1 have no identity
    with same_run(theirs, mine, path.parent):
        method.restore(tensors, path)
    return found
