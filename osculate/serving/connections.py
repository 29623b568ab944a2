"""Connections that take too long to send or to read, or are too many, are closed."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from osculate.serving.refusals import Refused

#: Seconds in which the headers of a request must arrive, after the connection or the answer before it, and in which a
#: client must read on.
HEADERS = 10.0
#: Answers to requests that were sent at once, without waiting.
PIPELINED = 100


class Connection(H11Protocol):
    """A connection by HTTP/1.1, which is dropped if a request does not arrive whole or is not read in time.

    uvicorn waits without end for headers and for a client that does not read, so that a client that sends a byte now
    and then, or never reads, would keep a connection.
    """

    #: Connections of a process at once, and seconds for headers; the server sets them for its process.
    most: int = 512
    seconds: float = HEADERS
    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _pipelined: int = 0

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        application = self.app

        async def whole(scope: Any, receive: Any, send: Any) -> None:
            try:
                await application(scope, receive, send)
            except Refused:  # of the guard, after its answer has begun: close() would wait until that is read
                self.cycle.disconnected = True
                self.transport.abort()

        self.app = whole

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._say(Refused(503, f"{self.most} connections are open: try again in a second.", {"retry-after": "1"}))
            return
        self._wait()

    def data_received(self, data: bytes) -> None:
        self._pipelined = 0
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._arrived()  # the guard watches over the rest of the request

    def on_response_complete(self) -> None:
        self._wait()  # before the next request of a pipeline, which super() begins
        self._pipelined += 1
        if self._pipelined > PIPELINED:
            self.transport.close()
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.response_complete:
            self._arrived()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        self._read()
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

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

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
