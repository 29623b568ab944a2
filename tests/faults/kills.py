"""Commands that are killed at any moment, begun again, and compared with what they give undisturbed."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import safe_open

#: A folder on another file system than that of the tests, where there is one.
ELSEWHERE = Path("/dev/shm")


@dataclass(frozen=True)
class Job:
    """A command of several seconds.

    Attributes:
        words: Words of the command line, with {run} for its folder.
        again: Words that make it go on.
        results: Files of the folder that must come out the same.
        before: Commands that it needs.
    """

    words: tuple[str, ...]
    again: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    before: tuple[tuple[str, ...], ...] = field(default=())


TRAIN = ("train", "--data", "digits", "--train-size", "300", "--epochs", "30", "--lr", "0.01", "--output", "{run}")
FIT = ("fit", "--checkpoint", "{run}/model.safetensors")
JOBS = {
    "train": Job(TRAIN, ("--resume",), ("model.safetensors",)),
    "full batch": Job(
        (*TRAIN[:5], "--model", "mlp", "--method", "hmc", "--epochs", "40", "--warmup", "20", "--output", "{run}"),
        ("--resume",),
        ("posterior.safetensors",),
    ),
    "fit": Job(FIT, (), ("posterior.safetensors",), (TRAIN,)),
    "evaluate": Job(("evaluate", "--posterior", "{run}"), (), ("evaluation.json",), (TRAIN, FIT)),
    "reconstruct": Job(
        ("reconstruct", "shepp_logan", "--size", "16", "--angles", "8", "--steps", "150", "--output", "{run}"),
        ("--resume",),
        ("reconstruction.npz",),
    ),
}
#: Entries of JSON files that differ from run to run.
VARYING = ("seconds", "versions")


def command(words: tuple[str, ...], run: Path, scratch: Path) -> list[str]:
    """The words of a process."""
    typed = [word.replace("{run}", str(run)) for word in words]
    return [sys.executable, "-m", "osculate", *typed, "--no-progress", "--device", "cpu"]


def environment(scratch: Path) -> dict[str, str]:
    """Temporary files in a folder of their own, and one thread."""
    return {**os.environ, "TMPDIR": str(scratch), "OMP_NUM_THREADS": "1"}


def undisturbed(job: Job, run: Path, scratch: Path) -> float:
    """Run a job to its end, and return its seconds."""
    scratch.mkdir(parents=True, exist_ok=True)
    for words in job.before:
        subprocess.run(command(words, run, scratch), env=environment(scratch), check=True, capture_output=True)
    began = time.monotonic()
    subprocess.run(command(job.words, run, scratch), env=environment(scratch), check=True, capture_output=True)
    return time.monotonic() - began


def killed(job: Job, run: Path, scratch: Path, seconds: float, draw: random.Random) -> str:
    """Kill a job at a random moment and begin it again until it ends; return what went wrong, or ""."""
    scratch.mkdir(parents=True, exist_ok=True)
    for words in job.before:
        subprocess.run(command(words, run, scratch), env=environment(scratch), check=True, capture_output=True)
    process = subprocess.Popen(
        command(job.words, run, scratch), env=environment(scratch), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(draw.uniform(0.2, 1.0) * seconds)
    process.kill()
    process.wait()
    for path in run.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            file.keys()
    words = job.words
    if job.again and (run / "config.yaml").exists():
        words = (*job.words, *job.again)
    ended = subprocess.run(command(words, run, scratch), env=environment(scratch), capture_output=True, text=True)
    if ended.returncode:
        return f"it does not go on: {ended.stderr.strip().splitlines()[-1]}"
    left = [path.name for folder in (run, scratch, run.parent) for path in folder.iterdir() if path.name[0] == "."]
    left += [path.name for path in scratch.iterdir() if not path.name.startswith("torchinductor")]  # torch's own cache
    return f"left behind: {', '.join(left)}" if left else ""


def difference(job: Job, one: Path, other: Path) -> str:
    """The first file of two folders with another content, or ""."""
    for name in job.results:
        if _content(one / name) != _content(other / name):
            return f"{name} differs"
    return ""


def _content(path: Path) -> object:
    if path.suffix == ".json":
        return _without_varying(json.loads(path.read_text()))
    if path.suffix == ".npz":
        import numpy as np

        with np.load(path) as arrays:
            return {name: arrays[name].tobytes() for name in arrays.files}
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name).reshape(-1).view(torch.uint8).numpy().tobytes() for name in file.keys()}  # noqa: SIM118


def _without_varying(content: object) -> object:
    if isinstance(content, dict):
        return {name: _without_varying(value) for name, value in content.items() if name not in VARYING}
    return content


def clean(*folders: Path) -> None:
    """Remove folders."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
