"""The site: what its hooks make of docstrings and citations, and what is wrong with its pages once it is built."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import osculate as osc
from tests.pages import complaints

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [page for page in DOCS.rglob("*.md") if "decisions" not in page.parts]
#: A name of the library in a piece of code, with what follows it.
NAME = re.compile(r"\bosc((?:\.\w+)+)")
#: A cell of the gallery that draws: a figure of osculate.plots, or one by hand.
DRAWS = re.compile(r"^(plots\.\w+\(|figure, |plt\.)", re.MULTILINE)


def module(path: Path) -> ModuleType:
    """A module of docs/, which is no package."""
    place = importlib.util.spec_from_file_location(f"docs_{path.stem}", path)
    assert place is not None
    assert place.loader is not None
    found = importlib.util.module_from_spec(place)
    place.loader.exec_module(found)
    return found


def hook(name: str) -> ModuleType:
    """A module of docs/hooks, without which the site cannot be built."""
    pytest.importorskip("mkdocs", reason="the extra docs is not installed: make docs installs it")
    return module(DOCS / "hooks" / f"{name}.py")


def known(name: str) -> bool:
    """Whether `osc` has such a name; what follows a class or a function is another matter."""
    thing: object = osc
    for part in name.strip(".").split("."):
        if not hasattr(thing, part):
            return False
        thing = getattr(thing, part)
    return True


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_every_name_of_the_library_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = {found[1] for code in re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL) for found in NAME.finditer(code)}
    assert not {name for name in names if not known(name)}


def test_a_wrong_name_is_found() -> None:
    assert known(".methods.MAP")
    assert not known(".methods.Map")


def docstrings() -> Iterator[str]:
    """All docstrings of the library."""
    for path in (ROOT / "osculate").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                yield ast.get_docstring(node) or ""


def test_every_equation_becomes_mathml() -> None:
    docs = hook("docstrings")
    equations = [found[2] for text in docstrings() for found in docs.EQUATION.finditer(text)]
    assert len(equations) > 100
    assert not [tex for tex in equations if "\\" in docs.equation(tex)]  # a command that is not known


def test_a_docstring_becomes_markdown() -> None:
    text = "θ* and λ*, by :func:`osculate.refine`.\n\n.. math:: a^2\n    + b\n\n>>> 2 * 3\n6\n"
    shown = hook("docstrings").shown(text, lambda name: name)
    assert shown.startswith(r"θ\* and λ\*, by <autoref")
    assert "<code>osc.refine</code>" in shown
    assert "<msup>" in shown
    assert shown.endswith("```pycon\n>>> 2 * 3\n6\n```\n")


def test_citations_become_links() -> None:
    docs = hook("references")
    found = docs.cited("See [mackay1992; immer2021] and [kingma2014, eqs 6, 7], not [1, 2].", "references.html")
    assert '<a href="references.html#mackay1992">MacKay 1992a</a>; <a ' in found
    assert "Immer et al. 2021a</a>]" in found
    assert "Kingma and Welling 2014</a>, eqs 6, 7], not [1, 2]." in found


def test_every_citation_has_a_reference() -> None:
    docs = hook("references")
    texts = [*docstrings(), *(page.read_text(encoding="utf-8") for page in PAGES)]
    cited = {
        key for text in texts for found in docs.CITATION.findall(text) for key in re.findall(r"[a-z]+\d{4}\w*", found)
    }
    assert "mackay1992" in cited
    assert not cited - set(docs.bibliography().entries)


@pytest.mark.parametrize("page", sorted((DOCS / "gallery").glob("*.py")), ids=lambda page: page.stem)
def test_every_figure_of_the_gallery_is_described(page: Path) -> None:
    cells = re.split(r"^# %%", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    code = [cell for cell in cells if not cell.startswith(" [markdown]")]
    assert not [cell[:80] for cell in code if DRAWS.search(cell) and not cell.partition("\n")[0].strip()]


GOOD = '<p id="here">Text, <code>[mackay1992]</code>. <a href="#here">Up</a> <img alt="A curve" src="curve.png"></p>'
BAD = {
    "a directive": "<p>.. math:: x</p>",
    "a role": "<p>See :func:<code>predict</code>.</p>",
    "a citation": "<p>As in [mackay1992].</p>",
    "TeX": r"<p>\frac{1}{2}</p>",
    "a broken link": '<a href="nowhere.html">Go</a>',
    "a broken anchor": '<a href="#nowhere">Go</a>',
    "a missing picture": '<img alt="A curve" src="nowhere.png">',
    "a picture without text": '<img src="curve.png">',
    "a script from elsewhere": '<script src="https://example.org/a.js"></script>',
    "a dumped value": '<div class="jp-OutputArea-child jp-OutputArea-executeResult"><pre>[None, None]</pre></div>',
}


@pytest.mark.parametrize("text", [GOOD, *BAD.values()], ids=["a good page", *BAD])
def test_what_is_wrong_with_a_page_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "curve.png").touch()
    (tmp_path / "index.html").write_text(text, encoding="utf-8")
    assert bool(list(complaints(tmp_path))) == (text != GOOD)


@pytest.mark.release  # `make check` runs it beside the check of types
def test_the_site_is_in_order(tmp_path: Path) -> None:
    """Without running the gallery, whose pages test_gallery.py runs as scripts; `make docs` checks all of it."""
    pytest.importorskip("mkdocs", reason="the extra docs is not installed: make docs installs it")
    environment = {**os.environ, "GALLERY": "false", "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not list(complaints(tmp_path))
    assert (tmp_path / "search" / "search_index.js").is_file()  # the search works without a server


@pytest.mark.release
def test_the_figure_of_the_front_page_is_drawn() -> None:
    front = module(DOCS / "front.py")
    assert len(front.figure().axes) == 4
    assert front.PLACE.is_file()
