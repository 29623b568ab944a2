"""Processes, sockets and signals of a service."""

import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from osculate.serving.connections import Connection
from osculate.serving.guard import App
from osculate.serving.settings import Access, Limits

#: Messages to standard error: a line for each request, and what goes wrong.
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain", "stream": "ext://sys.stderr"}},
    "loggers": {
        "osculate.serving": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "uvicorn": {"handlers": ["stderr"], "level": "ERROR", "propagate": False},
    },
}
#: Seconds in which a worker must answer its parent, and in which requests under way may end.
ALIVE, ENDING = 60, 5
#: Connections that wait to be accepted.
BACKLOG = 2048


@dataclass(frozen=True)
class Service:
    """A function that makes an application, in each process.

    Args:
        make: Function of the address, the limits: an application. It can be pickled.
        access: Address, with the port that was found.
        limits: Limits of a request.
    """

    make: Callable[[Access, Limits], App]
    access: Access
    limits: Limits

    def __call__(self) -> App:
        """Make the application in this process."""
        Connection.most = self.limits.connections
        return self.make(self.access, self.limits)


def serve(
    make: Callable[[Access, Limits], App], access: Access, limits: Limits, workers: int, ready: Callable[[str], None]
) -> None:
    """Serve until a signal ends it.

    Args:
        make: Function of the address and the limits: an application. It can be pickled.
        access: Address, names and token.
        limits: Limits of a request, in each process.
        workers: Number of processes.
        ready: Function of the address of the service, which is called when connections are accepted.

    Raises:
        OSError: the address is in use, or not of this machine.
    """
    with listening(access) as sock:
        access = replace(access, port=sock.getsockname()[1])
        config = uvicorn.Config(
            Service(make, access, limits),
            factory=True,
            http=Connection,
            ws="none",
            loop="asyncio",
            workers=workers,
            log_config=LOGGING,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=ENDING,
            timeout_worker_healthcheck=ALIVE,
        )
        ready(access.url)
        if workers == 1:
            uvicorn.Server(config).run(sockets=[sock])
        else:
            Multiprocess(config, sockets=[sock]).run()


def listening(access: Access) -> socket.socket:
    """A socket at the address, to which clients can connect."""
    family, *_, address = socket.getaddrinfo(access.host, access.port, type=socket.SOCK_STREAM)[0]
    try:
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise OSError(
            f"cannot listen at {access.host}:{access.port} ({error.strerror}): choose another --port."
        ) from None
