"""The gallery: every page runs as a plain script, is short, states its goal and limitations, and is in the menu."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = sorted((DOCS / "gallery").glob("*.py"))
MENU = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
#: Pages that run in `make check`; the site runs all when it is built.
CHECKED = ("classification",)
#: CPU seconds that a page may take on a quiet machine, imports not counted.
LONGEST = 10.0


#: Runs a page as a reader does, without the type checks of the tests, and prints the seconds it took.
DRIVER = """
import runpy, sys, time
import osculate, osculate.plots, osculate.training.loop
started = time.process_time()
runpy.run_path(sys.argv[1])
print("seconds", time.process_time() - started)
"""


def seconds(page: Path, folder: Path) -> float:
    """Run a page in a folder, and return the CPU seconds that it took."""
    paths = os.pathsep.join([str(DOCS.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(page)], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return float(done.stdout.split()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page if page.stem in CHECKED else pytest.param(page, marks=pytest.mark.release) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_the_page_runs(page: Path, tmp_path: Path) -> None:
    seconds(page, tmp_path)
    assert not list(tmp_path.iterdir())  # a page leaves nothing behind


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.release  # seconds count on a quiet machine alone
def test_the_page_is_quick(page: Path, tmp_path: Path) -> None:
    assert seconds(page, tmp_path) < LONGEST


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_states_its_goal_and_its_limitations(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# %% [markdown]\n# # ")
    assert "**What you learn.**" in text
    assert "# ## Findings and limitations" in text
    prose = [part for part in text.split("# %%") if part.startswith(" [markdown]")]
    # a result is printed by the run, so that it cannot grow old in the text
    assert not [found for part in prose for found in re.findall(r"\b\d\.\d{3,}", part)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_is_in_the_menu_and_in_the_list(page: Path) -> None:
    assert f"- gallery/{page.name}\n" in MENU
    assert f"]({page.name})" in (DOCS / "gallery" / "index.md").read_text(encoding="utf-8")


def test_every_page_is_in_the_menu() -> None:
    for page in DOCS.rglob("*.md"):
        assert f" {page.relative_to(DOCS).as_posix()}\n" in MENU, page


def test_every_name_of_the_reference_exists() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    names = re.findall(r"^::: osc\.(\S+)$", text, re.MULTILINE)
    assert len(names) > 150
    for name in names:
        module, _, thing = f"osculate.{name}".rpartition(".")
        assert hasattr(importlib.import_module(module), thing), name


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*DOCS.rglob("*.md"), *PAGES]:
        # text within a script is not translated: it names the pages as they are in the site
        kinds = "html" if page.suffix == ".py" else "md|py"
        for target in re.findall(r"\]\(([^)#:\s]+\.\w+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert re.search(rf"\.({kinds}|png)$", target), f"{page.name} -> {target}"
            assert (page.parent / target.replace(".html", ".py")).is_file(), f"{page.name} -> {target}"
