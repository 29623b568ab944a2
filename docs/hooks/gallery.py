"""A hook of mkdocs: pictures of the gallery get a text, and its front page shows the first of each page."""

import re
from base64 import b64decode
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from PIL import Image

#: A cell of a script, with the title behind its mark: `# %% The bands of three structures`.
CELL = re.compile(r"^# %%(?! \[markdown\])(.*)$", re.MULTILINE)
#: A cell of code on a page, with what it has put out.
CODE = re.compile(r'<div class="jp-Cell jp-CodeCell[^>]* id="cell-id.*?(?=<div class="jp-Cell |\Z)', re.DOTALL)
PICTURE = re.compile(r'<img\b[^>]*?src="data:image/png;base64,\s*([^"]+)"[^>]*>', re.DOTALL)
#: A row of the table of pages.
ROW = re.compile(r'<tr>\s*<td><a href="(\w+)\.html">(.*?)</a></td>\s*<td>(.*?)</td>\s*</tr>', re.DOTALL)
TABLE = re.compile(r"<div class=\"md-typeset__table\">.*?</div>|<table>.*?</table>", re.DOTALL)
WIDTH, HEIGHT = 480, 300
#: The first picture of each page, by the name of its script.
FIRST: dict[str, bytes] = {}


def described(html: str, script: str) -> str:
    """A page whose pictures have the titles of their cells as alternative text."""
    titles = iter(CELL.findall(script))

    def cell(found: re.Match[str]) -> str:
        title = next(titles).strip()
        return PICTURE.sub(lambda picture: f'<img alt="{escape(title)}" src="data:image/png;base64,{picture[1]}">', found[0])

    return CODE.sub(cell, html)


def cards(html: str) -> str:
    """The table of pages as cards with pictures."""

    def card(name: str, title: str, topic: str) -> str:
        picture = f'<img alt="A figure of this page" loading="lazy" src="thumbnails/{name}.png">' if name in FIRST else ""
        return f'<a class="card" href="{name}.html">{picture}<b>{title}</b><span>{topic}</span></a>'

    return TABLE.sub(lambda table: f'<div class="cards">{"".join(card(*row) for row in ROW.findall(table[0]))}</div>', html)


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Describe the pictures of a page, and keep the first."""
    source = Path(page.file.abs_src_path or "")
    if source.suffix == ".py":
        html = described(html, source.read_text(encoding="utf-8"))
        if first := PICTURE.search(html):
            FIRST[source.stem] = b64decode(first[1])
    return html


def on_env(env: Any, files: Files, **_: Any) -> Any:
    """Make cards of the table on the front page of the gallery."""
    front = files.get_file_from_path("gallery/index.md")
    assert front is not None and front.page is not None and front.page.content is not None
    front.page.content = cards(front.page.content)
    return env


def on_post_build(config: Any) -> None:
    """Write the small pictures."""
    folder = Path(config.site_dir) / "gallery" / "thumbnails"
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in FIRST.items():
        picture = Image.open(BytesIO(data)).convert("RGB")
        picture.thumbnail((WIDTH, HEIGHT))
        picture.save(folder / f"{name}.png")
