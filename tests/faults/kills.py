"""Commands that are killed at any moment, begun again, and compared with what they give undisturbed."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from osculate.tensorfiles import read_tensors
from osculate.training.checkpoints import Checkpoints

#: A folder on another file system than that of the tests, where there is one.
ELSEWHERE = Path("/dev/shm")


@dataclass(frozen=True)
class Job:
    """A command of several seconds.

    Attributes:
        words: Module and words of the command line, with {run} for its folder.
        again: Words that make it go on, where the folder holds a run.
        results: Files of the folder that must come out the same.
        before: Commands that it needs.
        mark: File by which a run is known.
    """

    words: tuple[str, ...]
    again: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    before: tuple[tuple[str, ...], ...] = ()
    mark: str = "config.yaml"


QUIET = ("--no-progress", "--device", "cpu")
DIGITS = ("osculate", "train", "--data", "digits", "--train-size", "300", *QUIET)
TRAIN = (*DIGITS, "--epochs", "30", "--lr", "0.01", "--output", "{run}")
FIT = ("osculate", "fit", "--checkpoint", "{run}/model.safetensors", *QUIET)
JOBS = {
    "train": Job(TRAIN, ("--resume",), ("model.safetensors",)),
    "full batch": Job(
        (*DIGITS, "--model", "mlp", "--method", "hmc", "--epochs", "12", "--warmup", "6", "--output", "{run}"),
        ("--resume",),
        ("posterior.safetensors",),
    ),
    "fit": Job((*FIT, "--tune", "false"), ("--resume",), ("posterior.safetensors",), (TRAIN,)),
    "refine": Job(("tests.faults.refinement", "{run}"), (), ("posterior.safetensors",)),
    "tune": Job((*FIT, "--structure", "diag", "--tune", "true"), ("--resume",), ("posterior.safetensors",), (TRAIN,)),
    "evaluate": Job(("osculate", "evaluate", "--posterior", "{run}", *QUIET), (), ("evaluation.json",), (TRAIN, FIT)),
    "reconstruct": Job(
        ("osculate", "reconstruct", "shepp_logan", "--size", "16", "--angles", "8", "--steps", "150", *QUIET)
        + ("--output", "{run}"),
        ("--resume",),
        ("reconstruction.npz",),
        mark="deep_image_prior.safetensors",
    ),
    "experiment": Job(
        ("experiments", "vl-figure1", "--seeds", "2", "--json", "{run}/record.json", "--no-progress")
        + ("--settings.temperatures", "[0.1, 1.0]", "--settings.fit", "{epochs: 2}", "--settings.task")
        + ("{data: digits, network: cnn, train_size: 100, validation_size: 50, test_size: 50}",),
        (),
        ("record.json",),
    ),
}
#: Entries of JSON files that differ from run to run.
VARYING = ("seconds", "versions")


def run_all(words: Sequence[tuple[str, ...]], run: Path, scratch: Path) -> None:
    """Run commands one after another.

    Raises:
        RuntimeError: one of them fails; the message is its last line.
    """
    for each in words:
        ended = subprocess.run(_typed(each, run), env=_environment(scratch), capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(ended.stderr.strip().splitlines()[-1])


def _typed(words: tuple[str, ...], run: Path) -> list[str]:
    return [sys.executable, "-m", *(word.replace("{run}", str(run)) for word in words)]


def _environment(scratch: Path) -> dict[str, str]:
    """Temporary files in a folder of their own, and one thread."""
    return {**os.environ, "TMPDIR": str(scratch), "OMP_NUM_THREADS": "1"}


class Kills:
    """Jobs that are killed, with what they give undisturbed; both are made once.

    Args:
        folder: Folder of all runs, on the file system of the temporary files of every other kill.
        elsewhere: Folder on another file system, for the temporary files of the others.
    """

    def __init__(self, folder: Path, elsewhere: Path) -> None:
        self._folder, self._elsewhere = folder, elsewhere
        (folder / "scratch").mkdir()
        self._seconds: dict[str, float] = {}

    def _copied(self, before: tuple[tuple[str, ...], ...], run: Path) -> None:
        """Put what some commands have made, each run once, into the folder of a run."""
        run.parent.mkdir(parents=True, exist_ok=True)
        if not before:
            return
        made = self._folder / f"before-{len(before)}"
        if not made.exists():
            self._copied(before[:-1], made)
            run_all(before[-1:], made, self._folder / "scratch")
        shutil.copytree(made, run)

    def _undisturbed(self, name: str) -> float:
        """Run a job to its end, once, and return its seconds."""
        if name not in self._seconds:
            job, run = JOBS[name], self._whole(name)
            self._copied(job.before, run)
            began = time.monotonic()
            run_all([job.words], run, self._folder / "scratch")
            self._seconds[name] = time.monotonic() - began
        return self._seconds[name]

    def _whole(self, name: str) -> Path:
        return self._folder / name / "whole" / "run"

    def outcome(self, name: str, number: int) -> str:
        """Kill a job at a random moment and begin it again until it ends.

        Args:
            name: Name of the job.
            number: Seed of the moment. With odd ones, temporary files are on the other file system.

        Returns:
            What went wrong, or "".
        """
        seconds, job, draw = self._undisturbed(name), JOBS[name], random.Random(number)
        scratch = self._elsewhere if number % 2 else self._folder / "scratch"
        run = self._folder / name / str(number) / "run"
        self._copied(job.before, run)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(_typed(job.words, run), env=_environment(scratch), **quiet)  # type: ignore[call-overload]
        time.sleep(draw.uniform(0.2, 1.0) * seconds)
        process.kill()
        process.wait()
        if unreadable := next(filter(None, map(_fault, sorted(run.rglob("*")))), ""):
            return unreadable
        words = (*job.words, *job.again) if job.again and (run / job.mark).exists() else job.words
        try:
            run_all([words], run, scratch)
        except RuntimeError as error:
            return f"it does not go on: {error}"
        left = [path.name for folder in (scratch, run.parent) for path in folder.iterdir()]
        left = [name for name in left if name != "run" and not name.startswith("torchinductor")]  # torch's own cache
        left += sorted(_names(run) - _names(self._whole(name)))
        if left:
            return f"left behind: {', '.join(left)}"
        differ = (each for each in job.results if _content(run / each) != _content(self._whole(name) / each))
        return next((f"{each} differs" for each in differ), "")


def _names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _fault(path: Path) -> str:
    """Why an artefact cannot be read, or ""; what is written aside, and not renamed yet, is none."""
    if path.suffix not in READERS or path.name[0] == ".":
        return ""
    try:
        READERS[path.suffix](path)
    except Exception as error:
        return f"{path.name} is unreadable: {error}"
    return ""


#: Functions that read an artefact, and check it, by the end of its name.
READERS: dict[str, Callable[[Path], object]] = {
    ".safetensors": read_tensors,
    ".ckpt": Checkpoints().load_checkpoint,
    ".json": lambda path: json.loads(path.read_text()),
    ".npz": lambda path: {name: each.tobytes() for name, each in np.load(path).items()},
}


def _content(path: Path) -> object:
    if path.suffix == ".json":
        return _without_varying(json.loads(path.read_text()))
    if path.suffix == ".npz":
        return READERS[".npz"](path)
    return {name: each.reshape(-1).view(torch.uint8).numpy().tobytes() for name, each in read_tensors(path)[1].items()}


def _without_varying(content: object) -> object:
    if isinstance(content, dict):
        return {name: _without_varying(value) for name, value in content.items() if name not in VARYING}
    return content
