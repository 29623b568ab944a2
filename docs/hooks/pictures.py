"""A hook of mkdocs: pages and figures of experiments/results, linked to where they are, go along to the site."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

EXPERIMENTS = Path(__file__).parent.parent.parent / "experiments"
LINK = re.compile(r"\]\((?:\.\./)+experiments/((?:results/)?[\w-]+\.(?:png|md))\)")
RECORD = re.compile(r"\[([^\]]+)\]\([\w-]+\.json\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of results, and their figures."""
    for path in [EXPERIMENTS / "RESULTS.md", *sorted((EXPERIMENTS / "results").glob("*.[mp][dn]*"))]:
        name = path.relative_to(EXPERIMENTS).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Link to them from where they are in the site, which has no records."""
    up = "../" * page.file.src_uri.count("/")
    markdown = LINK.sub(rf"]({up}\1)", markdown).replace("](../docs/", "](")
    return RECORD.sub(r"\1", markdown) if page.file.src_uri.startswith("results/") else markdown
