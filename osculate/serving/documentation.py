"""The page about the routes, made from their schema: nothing is loaded from elsewhere, and no script runs."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
code, pre { font-family: ui-monospace, monospace; }
.scroll, pre { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #8886; }
"""


def add_style(app: FastAPI) -> None:
    """Add the route of the style sheet of :func:`page`."""

    @app.get("/docs.css", include_in_schema=False)
    async def style() -> Response:
        return Response(STYLE, media_type="text/css")


def page(schema: Mapping[str, Any]) -> str:
    """The page as HTML.

    Args:
        schema: The schema of the routes, by OpenAPI.
    """
    title = escape(schema["info"]["title"])
    parts = [part for path, methods in schema["paths"].items() for part in _route(path, methods)]
    models = [part for name, model in schema["components"]["schemas"].items() for part in _model(name, model)]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="stylesheet" href="docs.css"></head><body><main><h1>{title}</h1>'
        '<p>The same as <a href="openapi.json">OpenAPI</a>, for programs.</p>'
        f"{''.join(parts)}<h2>Objects</h2>{''.join(models)}</main></body></html>"
    )


def _route(path: str, methods: Mapping[str, Any]) -> Iterator[str]:
    for method, route in methods.items():
        yield f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(route.get('summary', ''))}</p>"
        for kind, content in route.get("requestBody", {}).get("content", {}).items():
            yield f"<p>Body, <code>{escape(kind)}</code>: {_described(content['schema'])}</p>"
        answers = {status: escape(answer["description"]) for status, answer in route["responses"].items()}
        for content in (answer.get("content", {}) for status, answer in route["responses"].items() if status == "200"):
            answers["200"] = " ".join(_described(each["schema"]) for each in content.values())
        yield _table(("Status", "Answer"), [(status, answers[status]) for status in sorted(answers)])


def _model(name: str, model: Mapping[str, Any]) -> Iterator[str]:
    yield f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{escape(model.get("description", ""))}</p>'
    rows = [
        (key, f"{_described(entry)}. {escape(entry.get('description', ''))}")
        for key, entry in model.get("properties", {}).items()
    ]
    yield _table(("Entry", "Content"), rows)


def _described(schema: Mapping[str, Any]) -> str:
    """A type in words, as HTML."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_described(each) for each in schema["anyOf"])
    if schema.get("type") == "object" and "properties" in schema:
        entries = (f"<code>{escape(key)}</code>: {_described(each)}" for key, each in schema["properties"].items())
        return f"object with {', '.join(entries)}"
    if schema.get("type") == "array":
        size = f"{schema['minItems']} × " if schema.get("minItems") == schema.get("maxItems", -1) else ""
        return f"list of {size}{_described(schema.get('items', {}))}"
    return escape(str(schema.get("type", "")))


def _table(heads: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    """A table of two columns.

    Args:
        heads: Headings.
        rows: Rows, of which the second entry is HTML.
    """
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join(f"<tr><td><code>{escape(key)}</code></td><td>{text}</td></tr>" for key, text in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
