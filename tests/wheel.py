"""The built wheel in empty environments that hold torch alone: `python -m tests.wheel` installs it with each extra.

Names choose extras: `python -m tests.wheel core all`. With `all` the README, the quick starts and the guide to your own
data are followed.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from venv import EnvBuilder

from tests.following import COMPLETE, ROOT
from tests.licences import own_extras
from tests.test_extras import CORE


def environment(folder: Path, *packages: str, above: Path | None = None) -> Path:
    """A virtual environment with these packages.

    Args:
        folder: Where it lies.
        packages: Arguments of pip.
        above: Another environment, whose packages it sees.

    Returns: its folder of programs.
    """
    EnvBuilder(with_pip=True).create(folder)
    if above is not None:
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "above.pth").write_text(str(next(above.glob("lib/python*/site-packages"))), encoding="utf-8")
    constraints = ["-c", str(ROOT / "constraints.txt")]
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", *constraints, *packages], check=True)
    return folder / "bin"


def pages(programs: Path, folder: Path) -> None:
    """Follow README, quick starts and guide as a reader would."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    torchrun = programs / "torchrun"  # torch itself is in the environment above, with its programs
    torchrun.write_text(f'#!/bin/sh\nexec {programs / "python"} -m torch.distributed.run "$@"\n', encoding="utf-8")
    torchrun.chmod(0o755)
    for page in COMPLETE:
        (place := folder / page.stem).mkdir()
        call = [programs / "python", ROOT / "tests" / "following.py", page]
        subprocess.run(call, cwd=place, env=outside, check=True)


def main(names: list[str]) -> None:
    """Install the wheel with each extra."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (pinned,) = re.findall(r"^torch==\S+", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
        torch = folder / "torch"
        programs = environment(torch, pinned)
        subprocess.run([programs / "python", "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT], check=True)
        (wheel,) = folder.glob("*.whl")
        for extra in names or ["core", *own_extras(), "all"]:
            if extra == "astra":  # brings CUDA libraries
                continue
            package = str(wheel) if extra == "core" else f"osculate[{extra}] @ {wheel.as_uri()}"
            programs = environment(folder / extra, package, above=torch)
            blocked = CORE.format(names=[])
            subprocess.run([programs / "python", "-c", blocked, folder / "q.safetensors"], cwd=folder, check=True)
            if extra == "all":
                pages(programs, folder)
            print(f"{extra}: installed, and it runs", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
