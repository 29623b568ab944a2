"""Reports of the command line: one HTML file with embedded pictures."""

import base64
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import yaml

from osculate.cli.tables import Score, columns

#: The templates, with a placeholder for each part that depends on the run, and their words.
PAGES = Path(__file__).parent / "pages"
#: Numbers and names by heading.
Facts = Mapping[str, Mapping[str, Any]]


def page(template: str, title: str, **content: str) -> str:
    """The complete HTML file.

    Args:
        template: Name of a file in the folder ``pages``.
        title: Title of the page.
        content: HTML for each placeholder of the template.
    """
    frame, body = (Template((PAGES / f"{name}.html").read_text(encoding="utf-8")) for name in ("frame", template))
    return frame.substitute(name=escape(title), body=body.substitute(content))


def table(caption: str, rows: Mapping[str, Mapping[str, Score]]) -> str:
    """A table of scores by method; a cell is empty if the method lacks the score."""
    headings = columns(rows)
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings.values())
    body = "".join(
        f"<tr><td>{escape(label)}</td>{''.join(f'<td>{cell or str()}</td>' for cell in map(row.get, headings))}</tr>"
        for label, row in rows.items()
    )
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


@cache
def texts(template: str) -> dict[str, dict[str, dict[str, str]]]:
    """The words of a page: those of its figures, and the meanings of the columns of its tables."""
    return yaml.safe_load((PAGES / f"{template}.yaml").read_text(encoding="utf-8"))


def figures(template: str, drawn: Mapping[str, Path]) -> str:
    """The pictures of a page, each with its explanation."""
    parts = []
    for name, path in drawn.items():
        words = texts(template)["figures"][name]
        shows, picture = words["shows"], base64.b64encode(path.read_bytes()).decode()
        parts.append(
            f"<h2>{escape(words['heading'])}</h2><p>{escape(shows)}</p>"
            f'<figure><img alt="{escape(shows, quote=True)}" src="data:image/png;base64,{picture}"></figure>'
            f'<p class="read"><b>How to read it.</b> {escape(words["reading"])}</p>'
        )
    return "".join(parts)


def described(terms: Iterable[tuple[str, str]]) -> str:
    """Entries of a list of terms and their meanings."""
    return "".join(f"<dt>{escape(term)}</dt><dd>{escape(meaning)}</dd>" for term, meaning in terms)


def facts(groups: Facts) -> str:
    """A paragraph for each group of facts."""
    return "".join(
        f"<p><b>{escape(name)}</b>: {escape(', '.join(f'{key} {value}' for key, value in group.items()))}</p>"
        for name, group in groups.items()
    )


def command(settings: Mapping[str, Any]) -> str:
    """The command that repeats a run."""
    given = {name.replace("_", "-"): value for name, value in settings.items() if value not in (None, False)}
    words = [f"--{name}" if value is True else f"--{name} {value}" for name, value in given.items()]
    return " ".join(["osculate demo", *words])
