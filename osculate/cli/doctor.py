"""Check the installation: versions, devices, memory, data.

Imports every optional library that is installed and computes on every device. The exit status is 1 if something is
broken, with a sentence on what to do.
"""

import os
import shutil
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from osculate.checks import EXTRAS
from osculate.data.catalogue import CATALOGUE
from osculate.data.files import VARIABLE, user_cache
from osculate.files import versions
from osculate.memory import free, readable

#: Distributions of the libraries that have another name than their module.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "astra": "astra-toolbox",
    "docstring_parser": "docstring-parser",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


@dataclass(frozen=True)
class DoctorOptions:
    """The check, which has no options."""


PARTS = (DoctorOptions,)


def run(options: DoctorOptions) -> dict[str, Any]:
    """Print the facts and the problems."""
    problems: list[str] = []
    libraries = {name: _library(name, problems) for name in EXTRAS}
    missing = sorted({extra for name, extra in EXTRAS.items() if libraries[name] is None})
    facts: dict[str, Any] = {
        "versions": versions(("osculate", "safetensors", "scipy")) | {"torch": torch.__version__},  # with its build
        "libraries": libraries,
        "missing extras": missing,
        "devices": _devices(problems),
        "memory": {
            "free": free(torch.device("cpu")),
            "free on the disk of this folder": shutil.disk_usage(Path.cwd()).free,
        },
        "threads": _threads(problems),
        "data": _data(problems),
    }
    for title, content in facts.items():
        print(title)
        rows: Any = content.items() if isinstance(content, dict) else [("", ", ".join(content) or "none")]
        for name, value in rows:
            shown = readable(value) if title == "memory" else "not installed" if value is None else value
            print(f"  {name:<32} {shown}" if name else f"  {shown}")
    print("problems")
    print("\n".join(f"  {problem}" for problem in problems) or "  none")
    return {**facts, "problems": problems}


def _library(name: str, problems: list[str]) -> str | None:
    """The version of a library; None if it is not installed."""
    if find_spec(name) is None:
        return None
    try:
        import_module(name)
    except Exception as error:  # a library may raise anything
        reason = " ".join(str(error).split())
        problems.append(
            f"{name} is installed and cannot be imported ({reason}): pip install --force-reinstall --no-deps "
            f"{DISTRIBUTIONS.get(name, name)}."
        )
    try:
        return version(DISTRIBUTIONS.get(name, name))
    except PackageNotFoundError:
        return "unknown version"


def _devices(problems: list[str]) -> dict[str, str]:
    names = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    names += ["mps"] if torch.backends.mps.is_available() else []
    found = {}
    for name in names:
        device = torch.device(name)
        try:
            computed = bool((torch.eye(8, device=device) @ torch.ones(8, device=device) == 1).all())
            words = "right" if computed else "wrong results"
        except RuntimeError as error:
            computed, words = False, " ".join(str(error).split())
        if device.type == "cuda" and computed:
            words = f"{torch.cuda.get_device_name(device)}, {readable(free(device))} free"
        if not computed:
            problems.append(f"{name} does not compute ({words}): pass --device cpu, or mend its driver.")
        found[name] = words
    return found


def _threads(problems: list[str]) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    used = torch.get_num_threads()
    if used > cores:
        problems.append(f"torch uses {used} threads on {cores} cores, which is slow: set OMP_NUM_THREADS={cores}.")
    return {
        "cores": cores,
        "threads of torch": used,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "not set"),
    }


def _data(problems: list[str]) -> dict[str, Any]:
    named = os.environ.get(VARIABLE)
    if named and not Path(named).is_dir():
        problems.append(f"{VARIABLE} is {named!r}, where there is no folder: set it to the folder of the data sets.")
    if find_spec("pooch") is None:  # which knows the cache
        return {VARIABLE: named or "not set"}
    ready = [name for name, files in CATALOGUE.items() if files.built_in or files.found() is not None]
    return {
        VARIABLE: named or "not set",
        "cache": str(user_cache()),
        "data sets that are here": f"{len(ready)} of {len(CATALOGUE)}: osculate data list",
    }
