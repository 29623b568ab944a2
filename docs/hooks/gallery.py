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

ROOT = Path(__file__).parent.parent.parent
#: A cell of a script, with the title behind its mark: `# %% The bands of three structures`.
CELL = re.compile(r"^# %%(?! \[markdown\])(.*)$", re.MULTILINE)
#: A cell of code on a page, with what it has put out.
CODE = re.compile(r'<div class="jp-Cell jp-CodeCell[^>]* id="cell-id.*?(?=<div class="jp-Cell |\Z)', re.DOTALL)
PICTURE = re.compile(r'<img\b[^>]*?alt="(?P<text>[^"]*)"[^>]*?src="data:image/png;base64,\s*(?P<data>[^"]+)"[^>]*>')
#: A row of the table of pages.
ROW = re.compile(r'<tr>\s*<td><a href="(\w+)\.html">(.*?)</a></td>\s*<td>(.*?)</td>\s*</tr>', re.DOTALL)
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
WIDTH, HEIGHT = 480, 300
#: Text and content of the first picture of each page, by the name of its script.
FIRST: dict[str, tuple[str, bytes]] = {}


def described(html: str, script: str) -> str:
    """A page whose pictures have the titles of their cells as text; the search leaves its code out."""
    titles = iter(CELL.findall(script))

    def cell(found: re.Match[str]) -> str:
        tag = f'<img alt="{escape(next(titles).strip())}" src="data:image/png;base64,{{}}">'
        html = PICTURE.sub(lambda picture: tag.format(picture["data"]), found[0])
        return html.replace("<div ", "<div data-search-exclude ", 1)

    return CODE.sub(cell, html)


def card(name: str, title: str, topic: str) -> str:
    """A page of the gallery on its front page; its picture is missing if it was not run."""
    text, _ = FIRST.get(name, ("", b""))
    picture = f'<img alt="{text}" loading="lazy" src="thumbnails/{name}.png">' if name in FIRST else ""
    return f'<a class="card" href="{name}.html">{picture}<b>{title}</b><span>{topic}</span></a>'


def cards(html: str) -> str:
    """The table of pages as cards with pictures."""
    return TABLE.sub(
        lambda table: f'<div class="cards">{"".join(card(*row) for row in ROW.findall(table[0]))}</div>', html
    )


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Describe the pictures of a page, and keep the first."""
    source = Path(page.file.abs_src_path or "")
    if source.suffix == ".py":
        html = described(html, source.read_text(encoding="utf-8")).replace(f"{ROOT}/", "")  # in warnings
        if first := PICTURE.search(html):
            FIRST[source.stem] = first["text"], b64decode(first["data"])
    return html


def on_env(env: Any, files: Files, **_: Any) -> Any:
    """Make cards of the table on the front page of the gallery, once all pages have run."""
    front = files.get_file_from_path("gallery/index.md")
    if front is not None and front.page is not None:
        front.page.content = cards(front.page.content or "")
    return env


def on_post_build(config: Any) -> None:
    """Write the small pictures."""
    folder = Path(config.site_dir) / "gallery" / "thumbnails"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, data) in FIRST.items():
        picture = Image.open(BytesIO(data)).convert("RGB")
        picture.thumbnail((WIDTH, HEIGHT))
        picture.save(folder / f"{name}.png")
