"""Guards of an application, before anything is computed: names, tokens, sizes and time."""

import hmac
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import anyio

from osculate.serving.refusals import Refused
from osculate.serving.settings import Access, Limits

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

#: A line for each request: method, route, status and milliseconds, and nothing that a client has chosen.
LOG = logging.getLogger("osculate.serving")
#: Headers of every answer: nothing is loaded from elsewhere, framed, guessed or kept.
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
#: Seconds and multiples of the largest size that the rest of a refused body may take.
PATIENCE, MULTIPLE = 2.0, 10
#: Methods by which a route is called.
METHODS = frozenset({"GET", "HEAD", "POST"})


class Guard:
    """The outermost part of an application, through which every request goes.

    Args:
        app: The application.
        access: Address, names and token.
        limits: Limits of a request.
        routes: Paths that exist, with True for those that need no token.
    """

    def __init__(self, app: App, access: Access, limits: Limits, routes: Mapping[str, bool]) -> None:
        self._app, self._access, self._limits, self._routes = app, access, limits, routes
        self._at_once: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with a sentence if it is refused or fails."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        began, answer, method = time.perf_counter(), _Answer(send), scope["method"]
        try:
            try:
                self._admit(scope)
                with self._place(scope):
                    body = await self._body(scope, receive)
                    with anyio.fail_after(self._limits.seconds):
                        await self._app(scope, _replay(body, receive), answer)
            except TimeoutError:
                raise Refused(
                    504, f"no answer was found in {self._limits.seconds:g} seconds: send fewer rows at once."
                ) from None
            except Refused:
                raise
            except Exception as error:  # its message may hold inputs
                LOG.error("a request failed: %s", type(error).__name__)
                raise Refused(
                    500, "the request failed in the server, whose log has the kind of the error: try another input."
                ) from None
        except Refused as refused:
            if not answer.status:
                await self._drain(scope, receive)
                with anyio.move_on_after(PATIENCE):
                    await answer.refuse(refused)
                    return
            answer.status = refused.status
            raise  # the answer was on its way, or is not read: an aborted connection shows that it is not whole
        finally:
            known = scope["path"] in self._routes
            LOG.info(
                "%s %s %d %.1f ms",
                method if method in METHODS else "other",
                scope["path"] if known else "(unknown path)",
                answer.status,
                1000 * (time.perf_counter() - began),
            )

    def _admit(self, scope: Scope) -> None:
        """Raise Refused unless the names and the token are those of this server."""
        headers = scope["headers"]
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not self._access.knows(_name(f"//{hosts[0]}")):
            raise Refused(400, "the header Host is not a name of this server: pass it to --allowed-hosts if it is one.")
        origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
        fetched = {name: value for name, value in headers if name.startswith(b"sec-fetch-")}
        followed = scope["method"] == "GET" and fetched.get(b"sec-fetch-mode") == b"navigate"  # a link, not a script
        foreign = fetched.get(b"sec-fetch-site") == b"cross-site" and not followed
        if foreign or any(_netloc(origin) != hosts[0] for origin in origins):
            raise Refused(403, "pages of other sites may not call this server: call it from a program.")
        if self._access.token is not None and not self._routes.get(scope["path"], False):
            given = [value for name, value in headers if name == b"authorization"]
            kind, _, token = (given[0] if len(given) == 1 else b"").partition(b" ")
            right = hmac.compare_digest(token.strip(), self._access.token.encode())
            if kind.lower() != b"bearer" or not right:
                raise Refused(
                    401,
                    "the header Authorization must be Bearer and the token of this server.",
                    {"www-authenticate": "Bearer"},
                )

    @contextmanager
    def _place(self, scope: Scope) -> Iterator[None]:
        """Count the request among those at once."""
        client, again = str((scope.get("client") or ("",))[0]), {"retry-after": "1"}
        if self._at_once[client] >= self._limits.client:
            raise Refused(429, f"{self._limits.client} requests of yours are under way: wait for an answer.", again)
        if self._at_once.total() >= self._limits.requests:
            raise Refused(503, f"{self._limits.requests} requests are under way: try again in a second.", again)
        self._at_once[client] += 1
        try:
            yield
        finally:
            self._at_once[client] -= 1
            if not self._at_once[client]:
                del self._at_once[client]

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, in time and not too large."""
        if any(name == b"content-encoding" and value.lower() != b"identity" for name, value in scope["headers"]):
            raise Refused(415, "the header Content-Encoding says that the body is compressed: send it as it is.")
        most = self._limits.size
        large = Refused(413, f"the body has more than {most:,} bytes: send fewer rows at once.")
        declared = [value for name, value in scope["headers"] if name == b"content-length"]
        if declared and int(declared[0]) > most:  # digits alone: h11 refuses others
            raise large
        parts, size = [], 0
        with anyio.move_on_after(self._limits.seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refused(400, "the client has closed the connection.")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most:
                    raise large
                if not message.get("more_body", False):
                    return b"".join(parts)
        raise Refused(408, f"the body has not arrived in {self._limits.seconds:g} seconds: send it faster.")

    async def _drain(self, scope: Scope, receive: Receive) -> None:
        """Read some more of a refused body, since a client that is still sending would miss the answer."""
        if not any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"]):
            return
        left = MULTIPLE * self._limits.size
        with anyio.move_on_after(PATIENCE):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


class _Answer:
    """The way back to the client, which adds the headers of every answer and remembers its status."""

    def __init__(self, send: Send) -> None:
        self._send, self.status = send, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", []), *more]}
        await self._send(message)

    async def refuse(self, refused: Refused) -> None:
        """Answer with a sentence, and close the connection."""
        named = {"content-type": "application/json", "connection": "close", **refused.headers}
        headers = [(name.encode(), value.encode()) for name, value in named.items()]
        headers.append((b"content-length", str(len(refused.body)).encode()))
        await self({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self({"type": "http.response.body", "body": refused.body})


def _replay(body: bytes, receive: Receive) -> Receive:
    """A body that was read, for the application; afterwards what the connection says."""
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return parts.pop() if parts else await receive()

    return again


def _name(url: str) -> str:
    """The name of a host without its port, or "" if there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _netloc(origin: str) -> str:
    """The host and port of an origin, or "" if there is none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""
