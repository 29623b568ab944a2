"""What is wrong with the pages of a built site. `python -m tests.pages site` prints it."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Text that only a source should have: directives, roles, citations, TeX, references without a target.
LITERAL = re.compile(
    r"\.\. \w+::|(?<!:)::: \w|:(?:func|class|meth|mod|data|attr):|\[[a-z]+[12]\d{3}[a-z]*[\],;]"
    r"|\\[a-zA-Z]+\{|\]\[|\]\(\w"
)
#: Elements whose text is code, or not shown.
CODE = {"pre", "code", "script", "style", "math", "textarea"}
#: Elements without an end.
VOID = {"img", "br", "hr", "input", "link", "meta", "source", "wbr", "col", "path", "circle"}
#: Code once more, hidden, for the button that copies it.
COPIED = re.compile(r"<div[^>]*clipboard-copy-txt.*?</div>", re.DOTALL)


@dataclass
class Content(HTMLParser):
    """A page: its anchors, links, resources, pictures, text outside code, and results of cells."""

    anchors: set[str] = field(default_factory=lambda: {""})
    links: list[str] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)
    untitled: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    within: list[str] = field(default_factory=list)
    is_result: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif "src" in given or (tag == "link" and given.get("rel") != "canonical"):
            self.resources.append(given.get("src", given.get("href", "")))
        if tag == "img" and (not given.get("alt", "").strip() or given["alt"].startswith("No description")):
            self.untitled.append(given.get("src", "")[:40])
        if re.search(r"\bjp-(Cell|OutputArea-child)\b", given.get("class", "")):
            self.is_result = "jp-OutputArea-executeResult" in given["class"]
            self.results += [""] * self.is_result
        if tag not in VOID:
            self.within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.within:
            while self.within.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not CODE & set(self.within):
            self.text.append(data)
        elif self.is_result and "pre" in self.within:
            self.results[-1] += data


@cache
def content(page: Path) -> Content:
    """A page, read once."""
    found = Content()
    found.feed(COPIED.sub("", page.read_text(encoding="utf-8")))
    return found


def broken(page: Path, link: str, site: Path) -> bool:
    """Whether a link within the site leads nowhere."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or link.startswith("data:"):
        return False
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_file() or site.resolve() not in target.resolve().parents:
        return True
    return target.suffix == ".html" and unquote(parts.fragment) not in content(target).anchors | {"__top"}


def complaints(site: Path) -> Iterator[str]:
    """What is wrong: literal directives, broken links, resources from elsewhere, untitled pictures, dumped values."""
    for page in sorted(path for path in site.rglob("*.html") if path.name != "404.html"):
        found, name = content(page), page.relative_to(site)
        yield from (f"{name}: {literal[0]!r} is shown as text" for literal in LITERAL.finditer("".join(found.text)))
        yield from (f"{name}: the link {link!r} leads nowhere" for link in found.links if broken(page, link, site))
        for resource in found.resources:
            if re.match(r"(\w+:)?//", resource):
                yield f"{name}: {resource!r} is loaded from elsewhere"
            elif broken(page, resource, site):
                yield f"{name}: {resource!r} is missing"
        yield from (f"{name}: the picture {picture!r} has no text" for picture in found.untitled)
        yield from (f"{name}: a cell shows its value, {value[:60]!r}" for value in found.results if value.strip())


if __name__ == "__main__":
    wrong = list(complaints(Path(sys.argv[1])))
    print("\n".join(wrong) or "every page is in order")
    sys.exit(bool(wrong))
