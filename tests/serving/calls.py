"""Calls of an application without a server."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from osculate.serving.guard import App

JSON = {"content-type": "application/json"}
CSV = {"content-type": "text/csv"}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


async def called(
    app: App,
    method: str,
    path: str,
    body: Any = b"",
    headers: dict[str, str] | None = None,
    client: str = "127.0.0.1",
) -> Answer:
    """Call an application.

    Args:
        app: The application.
        method: GET or POST.
        path: The path.
        body: Bytes, a value for JSON, or an iterable of parts that ends with None if the rest never comes.
        headers: Further headers.
        client: Address of the client.
    """
    if not isinstance(body, bytes | list):
        body, headers = json.dumps(body).encode(), {**JSON, **(headers or {})}
    parts = [body] if isinstance(body, bytes) else list(body)
    given = {"host": "127.0.0.1:8000", "content-length": "", **(headers or {})}
    if isinstance(body, bytes):
        given["content-length"] = given["content-length"] or str(len(body))
    found: list[Any] = []

    async def receive() -> Any:
        if not parts:
            return {"type": "http.disconnect"}
        part = parts.pop(0)
        if part is None:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Any) -> None:
        found.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "client": (client, 1234),
        "server": ("127.0.0.1", 8000),
        "headers": [(name.encode(), value.encode()) for name, value in given.items() if value],
    }
    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in found[1:])
    return Answer(found[0]["status"], {k.decode(): v.decode() for k, v in found[0]["headers"]}, body)


def call(app: App, method: str, path: str, *words: Any, **options: Any) -> Answer:
    """Call an application once, see :func:`called`."""
    return asyncio.run(called(app, method, path, *words, **options))


def together(calls: Iterable[Callable[[], Awaitable[Answer]]]) -> list[Answer]:
    """The answers to calls at the same time."""

    async def all_of() -> list[Answer]:
        return list(await asyncio.gather(*(each() for each in calls)))

    return asyncio.run(all_of())
