"""Connections of clients that do not read."""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("fastapi")

import uvicorn

from osculate.serving.application import application
from osculate.serving.connections import PIPELINED, Connection
from osculate.serving.guard import App
from osculate.serving.settings import Access, Limits
from tests.serving.processes import rest
from tests.serving.test_service import Slow

GET = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def serving(app: App) -> Iterator[tuple[uvicorn.Server, int]]:
    """A server in a thread, and its port."""
    config = uvicorn.Config(app, http=Connection, ws="none", lifespan="off", log_config=None, access_log=False)
    server, sock = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        yield server, sock.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)


def client(port: int) -> socket.socket:
    """A client with little room for answers."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sock.connect(("127.0.0.1", port))
    return sock


def gone(server: uvicorn.Server, seconds: float) -> bool:
    """True when the server has no connection any more."""
    end = time.monotonic() + seconds
    while server.server_state.connections and time.monotonic() < end:
        time.sleep(0.02)
    return not server.server_state.connections


@pytest.mark.parametrize(("seconds", "patience"), [(0.3, 60.0), (60.0, 0.3)], ids=["answer", "reading"])
def test_a_client_that_does_not_read_is_dropped(
    seconds: float, patience: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(Connection, "seconds", patience)
    monkeypatch.setattr("osculate.serving.connections.PIPELINED", 10_000)
    app = application(Slow(), Access(), Limits(seconds=seconds))
    with serving(app) as (server, port), client(port) as sock:
        sock.settimeout(1)
        with pytest.raises((TimeoutError, ConnectionError)):  # the server stops to read
            sock.sendall(GET * 200_000)
        assert gone(server, 5)
        with socket.create_connection(("127.0.0.1", port)) as other:
            other.sendall(GET.replace(b"/openapi.json", b"/health"))
            assert b" 200 " in other.recv(100)
    assert "Traceback" not in caplog.text
    assert not any(record.exc_info for record in caplog.records)


def test_requests_that_do_not_wait_for_answers_are_few() -> None:
    app = application(Slow(), Access(), Limits())
    with serving(app) as (_, port), socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(GET.replace(b"/openapi.json", b"/health") * 1000)
        assert rest(sock).count(b" 200 OK") == PIPELINED + 1
