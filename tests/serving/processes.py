"""Servers in processes of their own, and their clients."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Server:
    """A server that accepts connections.

    Args:
        port: Its port.
        process: The process that was started.
        log: File of its messages.
    """

    port: int
    process: subprocess.Popen
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def connected(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def post(self, rows: Any, connection: http.client.HTTPConnection | None = None) -> tuple[int, Any]:
        """Status and content of the predictions for these rows."""
        connection = connection or self.connected()
        body = json.dumps({"inputs": rows})
        connection.request("POST", "/predict", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def raw(self, text: bytes) -> bytes:
        """All that the server sends for these bytes, until it closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as sock:
            sock.sendall(text)
            return rest(sock)


def rest(sock: socket.socket) -> bytes:
    """All that is still to come."""
    parts = []
    try:
        while part := sock.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@contextmanager
def started(command: str, folder: Path, *words: str, **environment: str) -> Iterator[Server]:
    """Run a command that serves this folder, and end it with Ctrl+C."""
    log = folder.parent / f"{folder.name}.{command}.log"
    line = [sys.executable, "-m", "osculate", command, str(folder), "--port", "0", "--no-progress", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", **environment}
    with log.open("w") as file:
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=file, text=True, env=env, cwd=folder.parent)
    assert process.stdout is not None
    try:
        said = []
        for text in process.stdout:
            said.append(text)
            if found := re.search(r"http://[\d.]+:(\d+)/", text):
                break
        else:
            raise AssertionError(f"it ended: {''.join(said)}{log.read_text()}")
        yield Server(int(found[1]), process, log)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        process.stdout.close()
