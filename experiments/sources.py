"""Digests of the code that an experiment imports, and the other circumstances by which its record goes stale."""

import ast
import subprocess
from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache
from hashlib import sha256
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

import osculate
from experiments.record import Origin
from osculate.data.catalogue import CATALOGUE
from osculate.data.files import places

#: Packages whose code counts, with their folders.
FOLDERS = {"osculate": Path(osculate.__file__).parent, "experiments": Path(__file__).parent}
#: What functions return that add words to claims.
CLAIMS = ("Claim", "Iterator[Claim]", "tuple[Claim, ...]")
#: Package that gathers modules which are independent of each other: one of them does not depend on the others.
GATHERS = "experiments"


class Sources:
    """The modules of packages, read without importing them.

    Args:
        folders: Folder of each package by name.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders
        self._known: dict[str, _Module | None] = {}
        self._direct: dict[str, set[str]] = {}

    def code(self, module: str) -> dict[str, str]:
        """Return a digest for each part of the code that a module imports, anywhere in it, and for itself.

        A part is a file or a folder of files at the first level of a package, such as "osculate/structures".

        Args:
            module: Dotted name.
        """
        parts: dict[str, list[str]] = {}
        for name in sorted(self.imported(module)):
            if found := self._module(name):
                parts.setdefault(_part(name, found), []).append(f"{name} {found.digest}")
        return {part: _short(lines) for part, lines in sorted(parts.items())}

    def imported(self, module: str) -> set[str]:
        """Return the modules that a module imports, directly or not, with their packages, and itself.

        A name that is imported from a package of experiments is followed to the module that it comes from. What else
        the package imports does not count.
        """
        found, waiting = set[str](), [module]
        while waiting:
            name = waiting.pop()
            if name not in found and self._module(name):
                found.add(name)
                waiting += self._imports(name)
        return found

    def words(self, module: str) -> set[str]:
        """Return the texts in the code of an experiment and of what it imports from the folders of experiments."""
        own = (self._module(name) for name in self.imported(module) if _gathers(name) and name.count(".") > 1)
        return {word for found in own if found for word in found.words}

    def _imports(self, name: str) -> set[str]:
        """The modules that a module imports itself, and its package."""
        if name not in self._direct:
            module, parent = self._module(name), name.rpartition(".")[0]
            found = {parent} if parent and not _gathers(name) else set[str]()
            for stem, imported in module.imports if module else ():
                whole = f"{stem}.{imported}" if imported else stem
                found.add(whole if self._module(whole) or not imported else self._origin_of(stem, imported))
            self._direct[name] = found
        return self._direct[name]

    def _origin_of(self, package: str, imported: str) -> str:
        """The module that a package of experiments has a name from; other packages stand for themselves."""
        module = self._module(package)
        names = module.imports if module and module.package and _gathers(package) else ()
        return next((stem for stem, name in names if name == imported), package)

    def _module(self, name: str) -> "_Module | None":
        if name not in self._known:
            top, *rest = name.split(".")
            stem = self._folders[top].joinpath(*rest) if top in self._folders else None
            paths = (stem / "__init__.py", stem.parent / f"{stem.name}.py") if stem else ()
            self._known[name] = next((_Module(name, path) for path in paths if path.is_file()), None)
        return self._known[name]


class _Module:
    """The code of a file that its results may depend on: without docstrings, what draws figures and what words claims.

    Attributes:
        package: It is the file of a package.
        digest: Digest of the code, which comments, formatting and the version of Python do not change.
        imports: Modules and names that are imported from them, also inside functions; no name for a module alone.
        words: Texts in the code.

    Args:
        name: Dotted name.
        path: Path of the file.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.package = path.name == "__init__.py"
        self._parent = name if self.package else name.rpartition(".")[0]
        self.imports: list[tuple[str, str]] = []
        self.words: set[str] = set()
        self.digest = _short(self._plain(ast.parse(path.read_bytes())))

    def _plain(self, node: Any) -> Any:
        """The tree of the program without what is empty, which versions of Python show in different ways."""
        if isinstance(node, list):
            return [self._plain(each) for each in node if not _idle(each)]
        if not isinstance(node, ast.AST):
            return node
        if isinstance(node, ast.Import):
            self.imports += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            stem = resolve_name("." * node.level + (node.module or ""), self._parent)
            self.imports += [(stem, alias.name) for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.words.add(node.value)
        elif isinstance(node, ast.JoinedStr):  # Python 3.12 begins to add empty texts
            node.values = [each for each in node.values if not (isinstance(each, ast.Constant) and each.value == "")]
        entries = ((name, self._plain(value)) for name, value in ast.iter_fields(node) if value not in (None, []))
        return (type(node).__name__, *entries)


def _idle(node: Any) -> bool:
    """True for a text that stands alone, such as a docstring, and for functions of what is no result.

    These draw the figure of a record, or return claims that they do not judge.
    """
    if isinstance(node, ast.FunctionDef):
        draws = any(isinstance(each, ast.Attribute) and each.attr == "figure" for each in node.decorator_list)
        names = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
        return draws or (node.returns is not None and ast.unparse(node.returns) in CLAIMS and "judged" not in names)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _short(content: Any) -> str:
    return sha256(repr(content).encode()).hexdigest()[:8]


def _gathers(name: str) -> bool:
    return name.split(".")[0] == GATHERS


def _part(name: str, module: _Module) -> str:
    top, *rest = name.split(".")
    if not rest:
        return f"{top}/__init__.py"
    return f"{top}/{rest[0]}" if len(rest) > 1 or module.package else f"{top}/{rest[0]}.py"


#: The code of this process, read once.
SOURCES = Sources(FOLDERS)


def origin(module: str, settings: Any) -> Origin:
    """Return the present commit, date, code and data of an experiment.

    Args:
        module: Name of its module.
        settings: Settings as a record has them.
    """
    return Origin(commit(), date.today().isoformat(), SOURCES.code(module), files(SOURCES.words(module), settings))


def files(words: set[str], settings: Any) -> dict[str, int]:
    """Return the bytes of the files of each data set that is named in code or settings, where they are on this machine.

    Args:
        words: Texts in the code.
        settings: Settings as a record has them.
    """
    words = words | set(_texts(settings))
    named = {word.lower().replace("-", "_") for word in words} & CATALOGUE.keys()
    sizes = {
        name: sum(
            next((path.stat().st_size for path in places(file) if path.is_file()), 0)
            for file in (*CATALOGUE[name].originals, *CATALOGUE[name].instead)
        )
        for name in sorted(named)
        if not CATALOGUE[name].built_in
    }
    return {name: size for name, size in sizes.items() if size}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part)


@cache
def commit() -> str:
    """Return the commit of the code, with "-dirty" if files of code differ from it; empty where git knows none."""

    def git(*words: str) -> str:
        where = ["git", "-C", str(FOLDERS[GATHERS].parent), *words]
        return subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", *(f"{name}/*.py" for name in FOLDERS))
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def minor(version: str) -> str:
    """Return a version without what follows its second number.

    >>> minor("2.13.0+cpu")
    '2.13'
    """
    return ".".join(version.split(".")[:2])
