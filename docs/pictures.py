"""A hook of mkdocs: figures of experiments/results, which pages link to where they are, go along to the site."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

RESULTS = Path(__file__).parent.parent / "experiments" / "results"
LINK = re.compile(r"\]\(\.\./experiments/results/([\w-]+\.png)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the figures that a page shows."""
    pages = [file.content_string for file in files.documentation_pages()]
    for name in {name for page in pages for name in LINK.findall(page)}:
        files.append(File.generated(config, f"results/{name}", abs_src_path=str(RESULTS / name)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Link to them."""
    return LINK.sub(r"](results/\1)", markdown)
