"""Pages followed from top to bottom as a reader would: `python tests/following.py README.md docs/quick_model.md`.

Code and commands run in the current folder. It needs the standard library alone, so that any environment can run it.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: The pages whose code and commands need nothing but an installation.
COMPLETE = tuple(
    ROOT / page
    for page in ("README.md", "docs/quick_model.md", "docs/quick_table.md", "docs/quick_images.md", "docs/data.md")
)
#: Commands by which a reader installs osculate.
INSTALLING = ("make", "pip")


@dataclass(frozen=True)
class Block:
    """A block of code in a page.

    Args:
        language: "python" or "sh".
        line: Number of the first line in the page.
        code: What stands in it.
        file: Name of the file that the reader saves it as, or "" for code that is run.
    """

    language: str
    line: int
    code: str
    file: str = ""


def blocks(text: str, *languages: str) -> list[Block]:
    """The blocks of a Markdown text in these languages, by default both."""
    pattern = re.compile(r'^```(python|sh)(?: title="([^"]+)")?\n(.*?)^```\s*$', re.MULTILINE | re.DOTALL)
    found = [
        Block(each[1], text[: each.start(3)].count("\n") + 1, each[3], each[2] or "") for each in pattern.finditer(text)
    ]
    return [block for block in found if block.language in (languages or ("python", "sh"))]


def bash(code: str) -> None:
    """Run commands with the programs of this Python."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", "-euc", code], env={**os.environ, "PATH": programs}, check=True)


def follow(steps: list[Block], name: str, shell: Callable[[str], None] = bash) -> dict:
    """Run blocks in their order, the code in one namespace, and save those that are files.

    Args:
        steps: The blocks.
        name: Name of the page in tracebacks.
        shell: What runs commands; those that install osculate are left out.

    Returns: the namespace.
    """
    namespace: dict = {"__name__": "page"}
    for block in steps:
        if block.file:
            Path(block.file).write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            # blank lines in front make the line numbers of a traceback those of the page
            exec(compile("\n" * (block.line - 1) + block.code, name, "exec"), namespace)
        elif shlex.split(block.code)[0] not in INSTALLING:
            shell(block.code)
    return namespace


if __name__ == "__main__":
    sys.path[0] = ""  # the current folder, as a reader has it
    for page in map(Path, sys.argv[1:]):
        follow(blocks(page.read_text(encoding="utf-8")), str(page))
