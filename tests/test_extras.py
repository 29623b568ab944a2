"""The core works without optional libraries, and a missing one is named with the extra that installs it."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import osculate as osc
from osculate import cli, plots
from osculate.autoencoders.codes import FlowCodes
from osculate.checks import EXTRAS, require_library
from osculate.cli.doctor import DISTRIBUTIONS
from osculate.data.corruptions import corrupted
from osculate.data.files import user_cache
from osculate.inverse.operators import from_astra
from osculate.progress import track
from tests.errors import says

ROOT = Path(__file__).resolve().parent.parent

CORE = """
import sys
for name in {names}:
    sys.modules[name] = None
import torch
import osculate as osc
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(40, 2), torch.randint(2, (40,))
model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)).eval()
q = osc.laplace(model, osc.likelihoods.Categorical(), (x, y))
q = osc.tune(q, (x, y))
before = osc.predict(q, x).probs, osc.log_evidence(q, data=(x, y))
osc.save(q, sys.argv[1])
q = osc.load(sys.argv[1], model)
after = osc.predict(q, x).probs, osc.log_evidence(q, data=(x, y))
torch.testing.assert_close(after, before)
done = osc.train(
    osc.methods.LevenbergMarquardt(nn.Linear(2, 1), osc.likelihoods.Gaussian()), (x, x[:, :1]), epochs=2, progress=False
)
student = osc.laplace(done.model, osc.likelihoods.StudentT(5.0), (x, x[:, :1]))
osc.predict(student, x)
"""


def _train() -> None:
    method = osc.methods.MAP(nn.Linear(1, 1), osc.likelihoods.Gaussian())
    osc.train(method, (torch.ones(2, 1), torch.ones(2, 1)), epochs=1, progress=False)


#: One use of every optional library.
USES: dict[str, Callable[[], object]] = {
    "PIL": lambda: corrupted(torch.zeros(1, 1, 8, 8), "pixelate", 1),
    "astra": lambda: from_astra({}, {}),
    "botorch": lambda: osc.tasks.bayesian_optimisation(lambda x: x.sum(1), [(0.0, 1.0)], lambda x, y: None),
    "lightning": _train,
    "pandas": lambda: osc.data.read({"x": [1.0, 2.0], "y": ["a", "b"]}, target="y"),
    "pooch": user_cache,
    "pyproximal": lambda: osc.inverse.tv_reconstruction(osc.inverse.RayTransform((4, 4)), torch.zeros(1), 1.0),
    "rich": lambda: list(track([1], "counting", 1, show=True)),
    "sklearn": lambda: osc.data.load("digits"),
    "torchmetrics": lambda: osc.metrics.auroc(torch.zeros(1), torch.ones(1)),
    "zuko": lambda: FlowCodes(2, 2),
}


def test_the_core_needs_no_optional_library(tmp_path: Path) -> None:
    blocked = [*EXTRAS, "pylops", "threadpoolctl", "torchvision"]
    code = CORE.format(names=blocked)
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "q.safetensors")], cwd=ROOT, check=True)


@pytest.mark.parametrize("name", USES)
def test_the_error_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=says(f"need {name}, which is not installed", f"'osculate[{EXTRAS[name]}]'")):
        USES[name]()


def test_figures_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [name for name in sys.modules if name.startswith(plots.__name__)]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=says("figures need matplotlib", "'osculate[plots]'")):
        __import__("osculate.plots")


@pytest.mark.parametrize("name", ["jinja2", "jsonargparse", "yaml", "rich"])
def test_the_program_without_its_extra(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    assert cli.main(["demo"]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert f"the commands need {name}" in printed
    assert "'osculate[cli]'" in printed


def test_progress_without_rich_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    require_library("lightning", "trainers")  # it looks for rich itself when it is first imported
    monkeypatch.setitem(sys.modules, "rich", None)
    method = osc.methods.MAP(nn.Linear(1, 1), osc.likelihoods.Gaussian())
    with pytest.raises(ImportError, match=says("progress bars need rich")):
        osc.train(method, (torch.ones(2, 1), torch.ones(2, 1)), epochs=1)


def test_a_library_that_lacks_a_dependency_of_its_own_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zuko.py").write_text("import nothing_of_this_name\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "zuko", raising=False)
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        require_library("zuko", "flows of codes")


def _extras() -> dict[str, list[str]]:
    """The distributions in each extra of pyproject.toml (read by hand: Python 3.10 has no reader of TOML)."""
    table = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1].split("\n[")[0]
    return {
        name: re.findall(r'"([\w-]+(?:\[[\w,]+\])?)', entries)
        for name, entries in re.findall(r"^(\w+) = \[(.*?)\](?: #[^\n]*)?$", table, re.M | re.S)
    }


def test_extras_of_the_code_are_those_of_the_project() -> None:
    extras = _extras()
    listed = {name: [entry.split("[")[0] for entry in entries] for name, entries in extras.items()}
    for library, extra in EXTRAS.items():
        assert DISTRIBUTIONS.get(library, library) in listed[extra], library
    tools = {"all", "dev", "bench", "docs"}
    used = {DISTRIBUTIONS.get(library, library) for library in EXTRAS}
    by_torch = {"onnx"}  # its exporter imports them
    assert {entry for name in listed.keys() - tools - by_torch for entry in listed[name]} == used
    assert extras["all"] == [f"osculate[{','.join(name for name in extras if name not in tools | {'astra'})}]"]


def test_every_use_of_an_optional_library_is_checked() -> None:
    calls = {
        name
        for path in (ROOT / "osculate").rglob("*.py")
        for name in re.findall(r'^ *(?:checks\.|_)?require_library\("(\w+)"', path.read_text(), re.M)
    }
    assert calls | {"jsonargparse", "docstring_parser", "rich", "yaml"} == set(EXTRAS)


def test_the_page_of_the_installation_lists_every_extra() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "install.md").read_text(encoding="utf-8"), re.M)
    assert set(listed) == _extras().keys() - {"all", "dev", "bench", "docs"}
