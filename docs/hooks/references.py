"""A hook of mkdocs: the page of references, made from refs.bib, and links from every citation to it."""

import logging
import re
from collections import Counter
from functools import cache
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from pybtex.backends.html import Backend
from pybtex.database import BibliographyData, Entry, parse_file
from pybtex.plugin import find_plugin
from pybtex.richtext import Text

PAGE = "references.md"
#: A citation in text: [mackay1992], [kingma2014, eqs 6, 7] or [mackay1992; immer2021].
CITATION = re.compile(r"\[([a-z]+[12]\d{3}[a-z]*(?:, [^\];]+|; ?[a-z]+[12]\d{3}[a-z]*)*)\]")
#: What is not text: code, and tags.
MARKUP = re.compile(r"(<pre\b.*?</pre>|<code\b.*?</code>|<script\b.*?</script>|<style\b.*?</style>|<[^>]*>)", re.DOTALL)
log = logging.getLogger("mkdocs.hooks.references")


@cache
def bibliography() -> BibliographyData:
    """The entries of refs.bib."""
    return parse_file(str(Path(__file__).parent.parent / "refs.bib"))


def names(entry: Entry) -> str:
    """The authors as a text cites them, such as "Immer et al."."""
    last = [str(Text.from_latex(" ".join(p.prelast_names + p.last_names))) for p in entry.persons["author"]]
    return f"{last[0]} et al." if len(last) > 2 else " and ".join(last)


@cache
def labels() -> dict[str, str]:
    """The texts of citations by key, in alphabetical order: "MacKay 1992a", with a letter where two would be alike."""
    plain = {key: f"{names(entry)} {entry.fields['year']}" for key, entry in bibliography().entries.items()}
    alike = Counter(plain.values())
    letters = {text: iter(ascii_lowercase) for text, number in alike.items() if number > 1}
    ordered = sorted(plain, key=lambda key: (plain[key].casefold(), key))
    return {key: plain[key] + next(letters.get(plain[key], iter(())), "") for key in ordered}


def cited(text: str, page: str) -> str:
    """A text whose citations are links.

    Args:
        text: The text, without markup.
        page: The address of the page of references.
    """

    def link(found: re.Match[str]) -> str:
        parts = [part.partition(",") for part in re.split(r"; ?", found[1])]
        if unknown := [key for key, *_ in parts if key not in bibliography().entries]:
            log.warning(f"{unknown[0]!r} is cited, and refs.bib has no such entry.")
            return found[0]
        links = [f'<a href="{page}#{key}">{labels()[key]}</a>{comma}{where}' for key, comma, where in parts]
        return f"[{'; '.join(links)}]"

    return CITATION.sub(link, text)


def on_files(files: Files, config: Any) -> Files:
    """Add the page of references."""
    entries = [bibliography().entries[key] for key in labels()]
    style = find_plugin("pybtex.style.formatting", "unsrt")()
    lines = [
        f'<p class="reference" id="{each.key}"><b>{labels()[each.key]}.</b> {each.text.render(Backend())}</p>'
        for each in style.format_entries(entries)
    ]
    files.append(File.generated(config, PAGE, content="# References\n\n" + "\n\n".join(lines) + "\n"))
    return files


def on_page_content(html: str, page: Page, files: Files, **_: Any) -> str:
    """Link the citations of a page, and leave them out of its title, which browsers show without links."""
    if CITATION.search(page.title or ""):
        page.meta["title"] = CITATION.sub("", page.title).strip()
    found = files.get_file_from_path(PAGE)
    assert found is not None
    address = get_relative_url(found.url, page.url)
    parts = MARKUP.split(html)
    parts[::2] = [cited(part, address) for part in parts[::2]]
    return "".join(parts)
