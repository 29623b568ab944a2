"""Types and shapes of arguments and results are checked while tests run, by jaxtyping and beartype.

The hook of jaxtyping itself (``--jaxtyping-packages``) wraps every function twice, and functions within functions anew
at each call: it takes more than half of the time of the suite. Here a function is wrapped once, and one within another
function only if its annotations name a shape; within one test its first calls are checked, and then few.
"""

import ast
import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import cache_from_source, decode_source
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import jaxtyping
from beartype import BeartypeConf, beartype
from torch.fx.experimental.proxy_tensor import get_proxy_mode

#: Compiled modules are kept beside those without checks, until this file changes.
TAG = f"checked{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]}"

#: Calls of a function in one test that are all checked, and how many of the later ones one check stands for.
FIRST, LATER = 2, 61
#: Calls of each function in this test, by its name: functions within functions are new at each call.
calls: dict[str, int] = {}

#: Python's own error of a wrong type, which tests of bad input expect.
refusing = beartype(conf=BeartypeConf(violation_type=TypeError))


def checked(thing: Any) -> Any:
    """Check a function's arguments and result when it is called, of a dataclass those of its constructor."""
    if inspect.isclass(thing):
        if is_dataclass(thing) and "__init__" in vars(thing):
            thing.__init__ = checked(thing.__init__)
        return thing
    name = f"{thing.__module__}.{thing.__qualname__}"
    compiled = functools.cache(lambda: refusing(thing))  # when it is called: many functions never are
    shaped = any("jaxtyping." in repr(each) or "[Tensor," in repr(each) for each in thing.__annotations__.values())
    if shaped and inspect.isgeneratorfunction(thing):
        return thing  # it runs within the calls that iterate, whose letters stand for other sizes

    @functools.wraps(thing)
    def call(*args: Any, **kwargs: Any) -> Any:
        calls[name] = turn = calls.get(name, 0) + 1
        if turn > FIRST and turn % LATER:
            return thing(*args, **kwargs)
        if jaxtyping.config.jaxtyping_disable or get_proxy_mode() is not None:  # or sizes are symbols of a graph
            return thing(*args, **kwargs)
        if not shaped:
            return compiled()(*args, **kwargs)  # a memory of sizes would cost more than the check
        with jaxtyping.jaxtyped("context"):  # a letter stands for one size in all arguments and the result
            return compiled()(*args, **kwargs)

    return call


def decorate(node: ast.AST, nested: bool = False) -> None:
    """Decorate the functions and classes in a statement or module with :func:`checked`; expressions hold none."""
    for child in (each for name in ("body", "orelse", "handlers", "finalbody") for each in getattr(node, name, ())):
        if isinstance(child, ast.ClassDef):
            child.decorator_list.insert(0, _checked(child))  # after @dataclass
        within = isinstance(child, ast.FunctionDef)
        if within and _has_types(child, nested):
            child.decorator_list.append(_checked(child))
        decorate(child, nested or within)


def _checked(node: ast.AST) -> ast.expr:
    return ast.copy_location(ast.Name("__checked__", ast.Load()), node)


def _has_types(node: ast.FunctionDef, nested: bool) -> bool:
    """True if a function has annotations to check: of one within another function only those with a shape."""
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    annotations = [a for a in (node.returns, *(argument.annotation for argument in arguments)) if a]
    operator = node.name.startswith("__") and node.name not in ("__init__", "__call__")  # may say NotImplemented
    return bool(annotations) and not operator and (not nested or any("[Tensor," in ast.unparse(a) for a in annotations))


class Loader(SourceFileLoader):
    """Compiles the decorated source."""

    def source_to_code(self, data: Any, path: Any, **options: Any) -> Any:  # type: ignore[override]
        tree = ast.parse(decode_source(data), path)
        decorate(tree)
        docstring = ast.get_docstring(tree) is not None
        tree.body.insert(int(docstring), ast.parse("from tests.checking import checked as __checked__").body[0])
        return compile(tree, path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        kept = functools.partial(cache_from_source, optimization=TAG)
        with patch("importlib._bootstrap_external.cache_from_source", lambda path, *_, **__: kept(path)):
            super().exec_module(module)


class Finder(MetaPathFinder):
    """Finds the modules whose functions are checked."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in self.packages:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec


def check_types_of(*packages: str) -> Callable[[], None]:
    """Check types and shapes in packages that are imported from now on; return the way back."""
    assert not set(packages) & set(sys.modules), "a module that was imported before would not be checked"
    sys.meta_path.insert(0, finder := Finder(packages))
    return lambda: sys.meta_path.remove(finder)
