"""Reports of the command line: one HTML file with its pictures inside, by templates of one look, in ``pages``."""

import base64
import shlex
import struct
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import yaml

from osculate.checks import require_library
from osculate.cli.folder import WAYS, versions, write_text
from osculate.cli.options import plain
from osculate.cli.tables import Score, columns

#: The templates, their stylesheet and their words.
PAGES = Path(__file__).parent / "pages"
#: Dots per inch of the figures, and of a page.
FIGURE_DPI, PAGE_DPI = 130, 96
#: Scores by method, by caption.
Tables = Mapping[str, Mapping[str, Mapping[str, Score]]]


@cache
def words() -> dict[str, dict[str, dict[str, str]]]:
    """The words of all figures, and units and meanings of all scores."""
    return yaml.safe_load((PAGES / "words.yaml").read_text(encoding="utf-8"))


def words_of(score: str) -> dict[str, str]:
    """Unit and meaning of a score; those of a family, such as ``accuracy/5``, share them."""
    known = words()["scores"]
    return known[score] if score in known else known[score.partition("/")[0] + "/"]


def meanings(tables: Tables) -> dict[str, str]:
    """The meaning of every column, by its heading."""
    shown = {name: heading for rows in tables.values() for name, heading in columns(rows).items()}
    return {
        words_of(name).get("term", heading.rstrip(" ↑↓")): words_of(name)["meaning"] for name, heading in shown.items()
    }


@cache
def _environment() -> Any:
    require_library("jinja2", "reports")
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    strict: dict[str, Any] = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True}
    found = Environment(loader=FileSystemLoader(PAGES), **strict)
    found.globals |= {"columns": columns, "words_of": words_of, "meanings": meanings}
    return found


def picture(name: str, figure: Any) -> dict[str, Any]:
    """A figure for the templates: its words, its PNG file in base 64, and its size on the page.

    Args:
        name: Name under which its words stand.
        figure: The figure, or the path of its file.
    """
    if isinstance(figure, Path):
        content = figure.read_bytes()
    else:
        from osculate.plots import style

        style.write(figure, file := BytesIO(), FIGURE_DPI)
        content = file.getvalue()
    width, height = (size * PAGE_DPI // FIGURE_DPI for size in struct.unpack(">II", content[16:24]))
    return {
        **words()["figures"][name],
        "name": name,
        "data": base64.b64encode(content).decode(),
        "width": width,
        "height": height,
    }


def write_page(
    path: Path,
    title: str,
    command: str,
    *,
    template: str = "run",
    files: Mapping[str, str],
    facts: Mapping[str, Mapping[str, Any]] | None = None,
    figures: Mapping[str, Any] | None = None,
    **content: Any,
) -> Path:
    """Write a report, complete or not at all.

    Args:
        path: Path of the HTML file.
        title: Title of the page.
        command: The command that repeats the run.
        template: Name of a file in the folder ``pages``.
        files: Files beside the page, and what they hold.
        facts: Facts for the end of the page by group; versions are added.
        figures: Figures or paths of their files, by the names under which their words stand.
        content: Further values for the template.
    """
    usual: dict[str, Any] = {"warnings": (), "tables": {}, "findings": (), "listings": {}, "about": {}, "next": ""}
    html = (
        _environment()
        .get_template(f"{template}.html")
        .render(
            usual | content,
            title=title,
            command=command,
            files=files,
            facts={**(facts or {}), "versions": versions()},
            figures=[picture(name, figure) for name, figure in (figures or {}).items()],
        )
    )
    write_text(path, html)
    return path


def command(name: str, *parts: Any) -> str:
    """The command that repeats a run, with the options that differ from their defaults.

    Args:
        name: Name of the command.
        parts: Options of the command, as dataclasses.
    """
    typed = ["osculate", name]
    for part in parts:
        for option in fields(part):
            usual = option.default if option.default_factory is MISSING else option.default_factory()
            if option.name not in WAYS and getattr(part, option.name) != usual:
                typed += _typed(option.name.replace("_", "-"), plain(asdict(part)[option.name]))
    return shlex.join(typed)


def _typed(option: str, value: Any) -> list[str]:
    """An option as it is typed, those of a mapping one by one."""
    if isinstance(value, dict):
        return [word for name, each in value.items() for word in _typed(f"{option}.{name}", each)]
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    return [f"--{option}", str(value)]
