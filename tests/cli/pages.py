"""What every report has: one stylesheet, pictures with words, nothing from elsewhere, and nothing that runs."""

from html.parser import HTMLParser
from pathlib import Path

from osculate.cli.page import PAGES

#: Elements without an end tag.
VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """The tags of a report with their attributes, and whether they are closed in order."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.content = path.read_text(encoding="utf-8")
        self.feed(self.content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open += [] if tag in VOID else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def count(self, tag: str) -> int:
        """The number of elements with a tag."""
        return sum(name == tag for name, _ in self.tags)


def check(path: Path, figures: int) -> str:
    """Check a report, and return its text without the pictures."""
    page = Page(path)
    assert page.open == []
    assert page.count("style") == 1
    assert (PAGES / "style.css").read_text(encoding="utf-8").strip() in page.content
    assert page.count("figure") == page.count("img") == page.count("figcaption") == figures
    words = page.content
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe", "object"), tag
        assert not any(name.startswith("on") for name in attributes), attributes
        for name in ("src", "href", "srcset", "action"):
            value = attributes.get(name) or "data:image/png;base64,"
            assert value.startswith("data:image/png;base64,"), value[:80]
        if tag == "img":
            assert len(attributes["alt"] or "") > 30
            words = words.replace(attributes["src"] or "", "")
    assert "://" not in words
    assert "{{" not in words
    assert words.count("How to read it.") == figures
    assert 'name="viewport"' in words
    return words
