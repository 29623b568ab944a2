"""Connections that take too long, or are too many, are closed."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from osculate.serving.refusals import Refused

#: Seconds in which the headers of a request must arrive, after the connection or the answer before it.
HEADERS = 10.0


class Connection(H11Protocol):
    """A connection by HTTP/1.1, which is dropped if a request does not arrive whole and in time.

    uvicorn waits for headers without end, so that a client that sends a byte now and then would keep a connection.
    """

    #: Connections of a process at once, and seconds for headers; the server sets them for its process.
    most: int = 512
    seconds: float = HEADERS
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._say(Refused(503, f"{self.most} connections are open: try again in a second.", {"retry-after": "1"}))
            return
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._arrived()  # the guard watches over the rest of the request

    def on_response_complete(self) -> None:
        self._wait()  # before the next request of a pipeline, which begins in the next line
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.response_complete:
            self._arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._say(Refused(400, "this is not a request of HTTP/1.1."))

    def _wait(self) -> None:
        self._arrived()
        self._late = self.loop.call_later(self.seconds, self.transport.abort)

    def _arrived(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _say(self, refused: Refused) -> None:
        """Answer without an application, and close."""
        reason = {400: "Bad Request", 503: "Service Unavailable"}[refused.status]
        headers = {
            "content-type": "application/json",
            "content-length": len(refused.body),
            "connection": "close",
            **refused.headers,
        }
        lines = [f"HTTP/1.1 {refused.status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + refused.body)
        self.transport.close()
        self._wait()
