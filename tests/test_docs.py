"""The code of the pages in docs/, executed from top to bottom; cli/test_guide.py also runs the commands of some."""

from pathlib import Path

import pytest

from tests.following import COMPLETE, ROOT, blocks, follow

#: Pages that train for longer.
SLOW = ("adapters", "functions", "guide")
#: Those that wait for a release: other tests run the same code.
LONG = ("deployment", "reconstruction")
PAGES = sorted(page for page in (ROOT / "docs").glob("*.md") if blocks(page.read_text(encoding="utf-8"), "python"))


def test_the_guide_to_extensions_is_among_the_pages() -> None:
    assert "extend.md" in [page.name for page in PAGES]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (page.stem in SLOW) + [pytest.mark.release] * (page.stem in LONG))
        for page in PAGES
        if page not in COMPLETE
    ],
    ids=lambda page: page.name,
)
def test_the_code_of_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what the examples save lands here
    names = follow(blocks(page.read_text(encoding="utf-8"), "python"), str(page))
    assert "osc" in names  # the page shows the library itself
