"""The page on a finished run: its files, and what they ask for."""

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from fastapi import Request
from fastapi.responses import Response

from osculate.serving.application import answered, closing, plain_app
from osculate.serving.bodies import JSON, content_of_json
from osculate.serving.guard import App, Guard
from osculate.serving.refusals import Refused
from osculate.serving.settings import Access, Limits
from osculate.serving.work import Work

#: The files of the page, which hold nothing of a run.
PAGES = Path(__file__).parent / "pages"
#: Their types.
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
#: A computation on a request, which may ask whether anybody still waits.
Action: TypeAlias = Callable[[Mapping[str, Any], Callable[[], None]], Mapping[str, Any]]


class RunView(ABC):
    """A view of one kind of run."""

    @abstractmethod
    def content(self, progress: bool = False) -> Mapping[str, Any]:
        """Compute what the page shows at first, in plain types; "kind" chooses how.

        Args:
            progress: Show a progress bar.
        """

    @property
    def actions(self) -> Mapping[str, Action]:
        """Computations by the names under which the page asks for them."""
        return {}


def explorer(view: RunView, content: Mapping[str, Any], access: Access, limits: Limits) -> App:
    """The page on a run, behind its guard.

    Args:
        view: The view of the run.
        content: Content of the view.
        access: Address, names and token; files of the page need no token, everything of the run does.
        limits: Limits of a request.
    """
    work, app = Work(limits.threads), plain_app("osculate explore", "open / in a browser")
    app.router.lifespan_context = closing(work)
    whole, routes = _json(content), {"/health": True, "/api/run": False}

    @app.head("/health")
    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/api/run")
    async def run() -> Response:
        return Response(whole, media_type=JSON)

    def add_file(route: str, path: Path) -> None:
        text = path.read_bytes()

        @app.get(route)
        async def file() -> Response:
            return Response(text, media_type=TYPES[path.suffix])

        routes[route] = True

    def add_action(name: str, action: Action) -> None:
        @app.post(f"/api/{name}")
        async def computed(request: Request) -> Response:
            return await _computed(work, action, request.headers.get("content-type", ""), request.body)

        routes[f"/api/{name}"] = False

    for path in sorted(PAGES.iterdir()):
        add_file("/" if path.name == "index.html" else f"/{path.name}", path)
    for name, action in view.actions.items():
        add_action(name, action)
    return Guard(app, access, limits, routes)


async def _computed(work: Work, action: Action, kind: str, read: Callable[[], Awaitable[bytes]]) -> Response:
    if kind.partition(";")[0].strip().lower() != JSON:
        raise Refused(415, f"the body must be {JSON}.")
    asked = content_of_json(await read())
    return Response(_json(await answered(work, partial(action, asked))), media_type=JSON)


def number(asked: Mapping[str, Any], name: str, most: int) -> int:
    """A whole number from 0 to below ``most`` in a request.

    Raises:
        Refused: it is missing or another.
    """
    value = asked.get(name)
    if type(value) is not int or not 0 <= value < most:
        raise Refused(422, f"{name} must be a whole number from 0 to {most - 1}.")
    return value


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
