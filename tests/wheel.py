"""The built wheel in empty environments that hold torch alone: `python -m tests.wheel` installs it with each extra.

Names choose extras: `python -m tests.wheel core all`. With `all` the quick starts run.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from venv import EnvBuilder

from tests.licences import own_extras
from tests.test_extras import CORE
from tests.test_readme import python_blocks

ROOT = Path(__file__).resolve().parent.parent
QUICK_STARTS = ("quick_model", "quick_table", "quick_images")
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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


def commands(page: str) -> str:
    """The commands of a page; those on a file of the reader's own network are left out."""
    blocks = SHELL.findall((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    return "".join(block for block in blocks if "package.module" not in block)


def quick_starts(programs: Path, folder: Path) -> None:
    """Run the quick starts as a reader would, each page in one process and then its commands."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    surroundings = outside | {"PATH": f"{programs}:{os.environ['PATH']}"}
    for page in QUICK_STARTS:
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        code = "\n".join(code for _, code in python_blocks(text))
        for call in ([programs / "python", "-c", code], ["bash", "-euc", commands(page)]):
            subprocess.run(call, cwd=folder, env=surroundings, check=True)


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
                quick_starts(programs, folder)
            print(f"{extra}: installed, and it runs", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
