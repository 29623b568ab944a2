"""The Python blocks of the pages in docs/, executed from top to bottom as a reader would run them."""

from pathlib import Path

import pytest

from tests.test_readme import python_blocks, run_blocks

DOCS = Path(__file__).resolve().parent.parent / "docs"
#: Pages that train for longer.
SLOW = ("adapters", "deployment", "functions", "guide", "quick_images", "reconstruction")
PAGES = sorted(page for page in DOCS.glob("*.md") if python_blocks(page.read_text(encoding="utf-8")))


def test_the_guide_to_extensions_is_among_the_pages() -> None:
    assert "extend.md" in [page.name for page in PAGES]


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] * (page.stem in SLOW)) for page in PAGES],
    ids=lambda page: page.name,
)
def test_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what the examples save lands here
    names = run_blocks(python_blocks(page.read_text(encoding="utf-8")), str(page))
    assert "osc" in names  # the page shows the library itself
