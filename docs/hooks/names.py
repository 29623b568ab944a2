"""A hook of mkdocs: names of the library lead to the reference, from text and from code."""

import re
from typing import Any

#: A line of a page of the reference.
ENTRY = re.compile(r"^::: osc\.(\S+)$", re.MULTILINE)
#: A name alone in a piece of code within a sentence, which is no link already; a call names the function.
IN_TEXT = re.compile(r"<a\b.*?</a>|<code>osc\.([\w.]+)(?:\([^<]*\))?</code>", re.DOTALL)
#: A name in highlighted code.
IN_CODE = re.compile(r'<span class="n">osc</span>((?:<span class="o">\.</span><span class="n">\w+</span>)+)')
TAG = re.compile(r"<[^>]*>")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Show what the reference lists under the name that people type, `osc.laplace`."""
    entry = '::: osculate.{0}\n    options: {{heading: "osc.{0}", toc_label: "{1}"}}'
    return ENTRY.sub(lambda found: entry.format(found[1], found[1].split(".")[-1]), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Link names; one that is not in the reference stays as it is."""

    def link(name: str, shown: str) -> str:
        return f'<autoref identifier="osculate.{name}" optional>{shown}</autoref>'

    html = IN_TEXT.sub(lambda found: link(found[1], found[0]) if found[1] else found[0], html)
    return IN_CODE.sub(lambda found: link(TAG.sub("", found[1]).lstrip("."), found[0]), html)
