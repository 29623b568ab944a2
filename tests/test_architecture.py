"""The shape of the package: imports point up the page of the pipeline, and constructors take few arguments.

Each rule is a function from the source of one module to a list of complaints. It is applied to every module
of the package, and to a small source that breaks it, so that a rule which has stopped working is noticed.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "osculate"

#: From first to last; a module may import its own entry and the ones before it.
ORDER = (
    "checks",
    "registry",
    "settings",
    "progress",
    "randomness",
    "files",
    "schema",
    "tensorfiles",
    "operations",
    "differentiation",
    "inputs",
    "memory",
    "distributed",
    "streams",
    "batches",
    "parameters",
    "likelihoods",
    "priors",
    "networks",
    "curvature",
    "linalg",
    "structures",
    "posteriors",
    "evidence",
    "predictive",
    "methods",
    "autoencoders",
    "inverse",
    "metrics",
    "data",
    "training",
    "tasks",
    "serialization",
    "plots",
    "serving",
    "cli",
    "adapters",
)

#: Leaves: they import nothing of ours but checks, so anything may import them, wherever they stand on the page.
LEAVES = frozenset({"checks", "registry", "linalg", "metrics"})

CONSTRUCTOR_ARGUMENTS = 7


def entry_of(path: Path) -> str:
    """The entry of the page that a file belongs to: ``osculate/tasks/ood.py`` -> ``tasks``."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Every module that a source imports, anywhere in it, as (line, absolute dotted name)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # level 1 is the package that holds the module, each further level its parent
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = [*base, *([node.module] if node.module else [])]
            yield from ((node.lineno, ".".join([*stem, alias.name])) for alias in node.names)


def wrong_imports(source: str, path: Path) -> list[str]:
    here = entry_of(path)
    if here in ("__init__", "__main__"):  # the package's own front page, and door, may import everything
        return []
    package = ("osculate", *path.relative_to(PACKAGE).parts[:-1])
    complaints = []
    for line, name in imported_modules(ast.parse(source), package):
        parts = name.split(".")
        if parts[0] != "osculate":
            continue
        there = parts[1] if len(parts) > 1 else ""
        if there == here:
            continue
        if there not in ORDER:
            complaints.append(f"{path}:{line} imports {name}: name the module, not the package's front page")
        elif here in LEAVES and there != "checks":
            complaints.append(f"{path}:{line}: {here} imports nothing of ours but checks, and imports {name}")
        elif there not in LEAVES and ORDER.index(there) > ORDER.index(here):
            complaints.append(f"{path}:{line} imports {name}: {there} stands below {here} on the page")
    return complaints


def is_dataclass(node: ast.ClassDef) -> bool:
    names = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    return any(getattr(d, "attr", getattr(d, "id", "")) == "dataclass" for d in names)


def is_derived_field(statement: ast.AnnAssign) -> bool:
    """A field that the constructor does not take: a ClassVar, or ``field(init=False)``."""
    if "ClassVar" in ast.unparse(statement.annotation):
        return True
    return isinstance(statement.value, ast.Call) and any(
        word.arg == "init" and getattr(word.value, "value", True) is False for word in statement.value.keywords
    )


def constructor_arguments(node: ast.ClassDef) -> int:
    """How many arguments it takes to make one (self, *args and **kwargs do not count)."""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            a = statement.args
            return len(a.posonlyargs) + len(a.args) + len(a.kwonlyargs) - 1
    if is_dataclass(node):
        return sum(isinstance(s, ast.AnnAssign) and not is_derived_field(s) for s in node.body)
    return 0


def wide_constructors(source: str, path: Path) -> list[str]:
    return [
        f"{path}:{node.lineno} {node.name}: {count} constructor arguments, at most {CONSTRUCTOR_ARGUMENTS}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef) and (count := constructor_arguments(node)) > CONSTRUCTOR_ARGUMENTS
    ]


def stray_matplotlib(source: str, path: Path) -> list[str]:
    if entry_of(path) == "plots":
        return []
    return [
        f"{path}:{line} imports {name}: only plots/ draws"
        for line, name in imported_modules(ast.parse(source), ("osculate",))
        if name.split(".")[0] == "matplotlib"
    ]


#: The one place of Lightning's checkpoints, which torch writes, and reads with weights_only=True.
CHECKPOINTS = "training/checkpoints.py"


def pickles(source: str, path: Path) -> list[str]:
    """Anything that reads or writes pickles: loading one executes whatever it holds."""
    tree = ast.parse(source)
    if path.as_posix().endswith(CHECKPOINTS):
        calls = [
            node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load"
        ]
        unsafe = [call for call in calls if "weights_only=True" not in map(ast.unparse, call.keywords)]
        return [f"{path}:{call.lineno} loads a checkpoint without weights_only=True" for call in unsafe]
    modules = [(line, name) for line, name in imported_modules(tree, ("osculate",))]
    found = [
        (line, name) for line, name in modules if name.split(".")[0] in {"pickle", "dill", "joblib", "cloudpickle"}
    ]
    found += [(line, name) for line, name in modules if name in {"torch.load", "torch.save"}]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"torch.load", "torch.save"}:
            found.append((node.lineno, ast.unparse(node)))
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            found.append((node.value.lineno, f"allow_pickle={ast.unparse(node.value)}"))
    return [f"{path}:{line} uses {name}: artefacts are safetensors, npz or JSON" for line, name in found]


RULES = (wrong_imports, wide_constructors, stray_matplotlib, pickles)

WIDE_DATACLASS = "@dataclass(frozen=True)\nclass C:\n" + "".join(f"    a{i}: int\n" for i in range(8))

#: (rule, file, a source that breaks it)
BROKEN = (
    (wrong_imports, "predictive/probit.py", "from osculate.tasks import ood"),
    (wrong_imports, "predictive/probit.py", "import osculate.tasks.ood"),
    (wrong_imports, "predictive/probit.py", "from osculate import tasks"),
    (wrong_imports, "predictive/probit.py", "from ..tasks import ood"),
    (wrong_imports, "structures/blocks/kronecker.py", "from ...tasks import ood"),
    (wrong_imports, "predictive/probit.py", "def f():\n    from osculate.data import load"),
    (wrong_imports, "tasks/ood.py", "import osculate"),
    (wrong_imports, "tasks/ood.py", "from osculate import predict"),
    (wrong_imports, "linalg/cg.py", "from osculate.parameters import flatten"),
    (wide_constructors, "cli/main.py", "class C:\n    def __init__(self, a, b, c, d, *, e, f, g, h): ..."),
    (wide_constructors, "cli/main.py", WIDE_DATACLASS),
    (stray_matplotlib, "tasks/ood.py", "def f():\n    import matplotlib.pyplot as plt"),
    (stray_matplotlib, "tasks/ood.py", "from matplotlib import pyplot"),
    (pickles, "serialization.py", "import pickle"),
    (pickles, "serialization.py", "from pickle import loads"),
    (pickles, "serialization.py", "import torch\ntorch.save({}, 'x')"),
    (pickles, "serialization.py", "from torch import load"),
    (pickles, "training/checkpoints.py", "import torch\ntorch.load('x', weights_only=False)"),
    (pickles, "data/files.py", "import numpy as np\nnp.load('x', allow_pickle=True)"),
)

#: (rule, file, a source that must pass)
SOUND = (
    (
        wrong_imports,
        "tasks/ood.py",
        "from osculate.predictive import predict\nfrom osculate.metrics import auroc",
    ),
    (wrong_imports, "tasks/ood.py", "from osculate.tasks.calibration import calibration\nfrom . import x"),
    (wrong_imports, "evidence/laplace.py", "from ..linalg import cg\nimport torch"),
    (wrong_imports, "__init__.py", "from osculate.cli import main"),
    (wide_constructors, "cli/main.py", "class C:\n    def __init__(self, a, b, c, d, *, e, f, g): ..."),
    (stray_matplotlib, "plots/bands.py", "import matplotlib"),
    (pickles, "data/files.py", "import numpy as np\nnp.load('x', allow_pickle=False)"),
)

Rule = Callable[[str, Path], list[str]]


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_rule(rule: Rule) -> None:
    assert modules(), "the package was not found"
    complaints = [line for path in modules() for line in rule(path.read_text(encoding="utf-8"), path)]
    assert not complaints, "\n" + "\n".join(complaints)


@pytest.mark.parametrize(("rule", "file", "source"), BROKEN)
def test_a_source_that_breaks_the_rule_is_found(rule: Rule, file: str, source: str) -> None:
    assert rule(source, PACKAGE / file)


@pytest.mark.parametrize(("rule", "file", "source"), SOUND)
def test_a_source_that_keeps_the_rule_passes(rule: Rule, file: str, source: str) -> None:
    assert not rule(source, PACKAGE / file)


def test_every_entry_of_the_package_has_its_place_on_the_page() -> None:
    entries = {entry_of(path) for path in modules()} - {"__init__", "__main__", "version"}
    assert not entries - set(ORDER), f"no place in ORDER for {sorted(entries - set(ORDER))}"
