"""The source of Python's standard library as text: its files, the functions of a package, and tokens."""

import ast
import hashlib
import heapq
import platform
import random
import re
import sysconfig
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

#: Folders of other things, and of tables rather than code; files that the installation writes start with "_sysconfig".
LEFT_OUT = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "encodings", "pydoc_data"}
)
#: A line's end with the indentation that follows, a word with the space before it, or a character.
PIECE = re.compile(r"\n *| ?[A-Za-z]+|.", re.DOTALL)
#: Token between files and after the end of a text; no source has this byte.
END = 0
#: Least number of characters of a function.
SHORTEST = 150


@dataclass(frozen=True)
class Source:
    """A file of the standard library.

    Args:
        path: Path below the folder of the standard library, with slashes.
        text: Contents.
    """

    path: str
    text: str

    @property
    def package(self) -> str:
        """Name of the package, or of the module that is no part of one."""
        return self.path.partition("/")[0].removesuffix(".py")

    def functions(self) -> list[str]:
        """Return the functions and methods of at least 150 characters, without their indentation."""
        lines = self.text.splitlines()
        spans = (lines[node.lineno - 1 : node.end_lineno] for node in _definitions(ast.parse(self.text).body))
        texts = (textwrap.dedent("\n".join(span)) for span in spans)
        return [text for text in texts if len(text) >= SHORTEST]


def _definitions(body: Iterable[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _definitions(node.body)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@cache
def library() -> tuple[Source, ...]:
    """Return the files of the standard library in the order of their paths."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = {path.relative_to(root): path for path in root.rglob("*.py")}
    return tuple(
        Source(name.as_posix(), path.read_text(encoding="utf-8", errors="replace"))
        for name, path in sorted(found.items())
        if not LEFT_OUT & set(name.parts) and not name.parts[0].startswith(("_sysconfig", "config-"))
    )


def described(sources: Iterable[Source]) -> dict[str, Any]:
    """Return the number of files and bytes, the version of Python, and a digest of paths and contents."""
    digest, files, size = hashlib.sha256(), 0, 0
    for source in sources:
        data = source.text.encode()
        digest.update(f"{source.path} {len(data)} ".encode() + data)
        files, size = files + 1, size + len(data)
    return {"python": platform.python_version(), "files": files, "bytes": size, "sha256": digest.hexdigest()}


def shuffled(sources: Iterable[Source], *names: Any) -> list[Source]:
    """Return files in an order that depends on their paths and some names alone."""
    return sorted(sources, key=lambda source: hashlib.sha256(f"{source.path} {names}".encode()).digest())


def within(sources: Sequence[Source], size: float) -> list[Source]:
    """Return the first files that together have at most so many characters."""
    found, total = [], 0
    for source in sources:
        total += len(source.text)
        if total > size:
            break
        found.append(source)
    return found


def split(package: str, sizes: Sequence[int], seed: int) -> list[list[str]]:
    """Return disjoint sets of functions of a package, of which no two have a file in common.

    The files come in an order by the seed. Each set takes whole files in turn, at most a quarter of its functions from
    one of them, until it is complete; the last one, whose size is a limit, takes those that are left.

    Args:
        package: Name of the package.
        sizes: Number of functions of each set.
        seed: Seed of the order, and of the choice of functions.

    Raises:
        ValueError: The package has too few files with functions.
    """
    files = iter(shuffled([source for source in library() if source.package == package], seed))
    found: list[list[str]] = []
    for size in sizes:
        texts: list[str] = []
        while len(texts) < size and (source := next(files, None)) is not None:
            functions = source.functions()
            texts += random.Random(f"{seed} {source.path}").sample(functions, min(len(functions), -(-size // 4)))
        found.append(texts[:size])
    if not found[-1] or any(len(texts) < size for texts, size in zip(found[:-1], sizes, strict=False)):
        raise ValueError(
            f"the package {package!r} of this Python has functions for sets of {[len(texts) for texts in found]} of "
            f"{list(sizes)}: install all of the standard library (python3-tk and idle3 where they are apart), or name "
            "other packages."
        )
    return found


@dataclass(frozen=True)
class Vocabulary:
    """Tokens: frequent pieces of a text, and the 256 bytes for all others.

    Args:
        pieces: Pieces with a token of their own.
    """

    pieces: tuple[str, ...]
    _known: dict[str, list[int]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, texts: Iterable[str], size: int) -> "Vocabulary":
        """Choose the pieces that save most bytes.

        Args:
            texts: Texts.
            size: Number of tokens, the 256 bytes included.
        """
        counts = Counter(piece for text in texts for piece in PIECE.findall(text))
        saved = {piece: number * (len(piece.encode()) - 1) for piece, number in counts.items()}
        return cls(tuple(heapq.nlargest(size - 256, saved, key=lambda piece: (saved[piece], piece))))

    def __post_init__(self) -> None:
        self._known.update({piece: [256 + number] for number, piece in enumerate(self.pieces)})

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        known = self._known
        return [
            t for piece in PIECE.findall(text) for t in known.get(piece) or known.setdefault(piece, [*piece.encode()])
        ]

    def padded(self, texts: Sequence[str], length: int) -> Int[Tensor, "N T"]:
        """Return the first tokens of each text, and ``END`` after the end of a short one."""
        rows = torch.full((len(texts), length), END)
        for row, text in zip(rows, texts, strict=True):
            tokens = torch.tensor(self.encode(text)[:length])
            row[: len(tokens)] = tokens
        return rows

    def windows(self, sources: Iterable[Source], length: int) -> tuple[Int[Tensor, "N T"], Int[Tensor, "N T"]]:
        """Return windows of the concatenated files, and the next token at each position."""
        tokens = torch.tensor([token for source in sources for token in (*self.encode(source.text), END)])
        whole = tokens[: (len(tokens) - 1) // length * length + 1]
        return whole[:-1].reshape(-1, length), whole[1:].reshape(-1, length)
