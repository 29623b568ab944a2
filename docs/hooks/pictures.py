"""A hook of mkdocs: the page of results, and the records and figures of experiments/results that pages show."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

EXPERIMENTS = Path(__file__).parent.parent.parent / "experiments"
LINK = re.compile(r"\]\((?:\.\./experiments/)?results/([\w-]+\.(?:png|json))\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the page of results, and what it and other pages show."""
    text = (EXPERIMENTS / "RESULTS.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "results.md", content=text))
    pages = [file.content_string for file in files.documentation_pages() if file.src_uri.endswith(".md")]
    for name in {name for page in pages for name in LINK.findall(page)}:
        files.append(File.generated(config, f"results/{name}", abs_src_path=str(EXPERIMENTS / "results" / name)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Link to them."""
    return LINK.sub(r"](results/\1)", markdown)
