"""Reports of the command line: one HTML file with embedded pictures."""

import base64
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from osculate.cli.tables import Score, columns

STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2.5rem auto; padding: 0 1rem }
h1 { font-size: 1.7rem; margin-bottom: .2rem } h2 { font-size: 1.2rem; margin: 2.6rem 0 .4rem }
.lead { font-size: 1.08rem } .scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: .9rem; margin: .8rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .7rem .3rem 0; text-align: right; border-bottom: 1px solid #ddd; vertical-align: bottom }
td { white-space: nowrap } th:first-child, td:first-child { text-align: left }
th { font-weight: 600; font-size: .88rem }
caption { text-align: left; font-size: .9rem; color: #666; padding-bottom: .3rem }
figure { margin: 1rem 0 } img { max-width: 100%; height: auto }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.2rem; font-size: .95rem }
dt { font-weight: 600 } dd { margin: 0 } .read { border-left: 3px solid #0072B2; padding-left: .9rem }
footer { margin-top: 3rem; font-size: .88rem; color: #555 } code { background: #f3f3f3; padding: .05rem .3rem }
"""

FRAME = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>osculate: $name</title><style>$style</style></head><body>
$body
</body></html>
""")

#: Explanation of a figure: heading, description, reading guide.
Explanation = tuple[str, str, str]
#: Numbers and names by heading.
Facts = Mapping[str, Mapping[str, Any]]


def page(name: str, body: str) -> str:
    """The complete HTML file.

    Args:
        name: title of the page.
        body: HTML.
    """
    return FRAME.substitute(name=escape(name), style=STYLE, body=body)


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


def figure(path: Path, explanation: Explanation) -> str:
    """A picture with its explanation."""
    heading, shows, reading = explanation
    picture = base64.b64encode(path.read_bytes()).decode()
    return (
        f"<h2>{escape(heading)}</h2><p>{escape(shows)}</p>"
        f'<figure><img alt="{escape(shows, quote=True)}" src="data:image/png;base64,{picture}"></figure>'
        f'<p class="read"><b>How to read it.</b> {escape(reading)}</p>'
    )


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
