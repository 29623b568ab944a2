"""Who may connect, and how much a request may take."""

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path

from osculate.checks import require_positive, require_whole

#: The variable of the environment with the token.
TOKEN = "OSCULATE_TOKEN"
#: Characters that a token has at least.
SHORTEST = 16
#: Names of this machine, of which no other machine can be the owner.
OWN_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
#: Addresses on which a server listens to every network.
EVERYWHERE = frozenset({"0.0.0.0", "::", ""})


@dataclass(frozen=True)
class Access:
    """Address, names and token of a server.

    Args:
        host: Address to listen at.
        port: Port; 0 takes a free one.
        names: Further names by which clients call this server, as in the header Host.
        token: Bearer token that every request must carry, or None.

    Raises:
        ValueError: an address that other machines reach without a token, or without a name to call it by.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    names: tuple[str, ...] = ()
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require_whole("the port", self.port, least=0)
        if self.port > 65535:
            raise ValueError(f"the port must be at most 65535, got {self.port}.")
        if self.token is None and not is_loopback(self.host):
            raise ValueError(
                f"{self.host!r} can be reached from other machines, for which a token is needed: put a secret of at "
                f"least {SHORTEST} characters into the variable {TOKEN} or a file (--token-file), or leave --host out."
            )
        if self.token is not None and (len(self.token) < SHORTEST or not self.token.isascii()):
            raise ValueError(f"the token must have at least {SHORTEST} characters, all ASCII: choose a longer one.")
        if self.host in EVERYWHERE and not self.names:
            raise ValueError(
                f"--host {self.host} listens to every network: name with --allowed-hosts the names or addresses by "
                "which clients call this machine."
            )

    @property
    def url(self) -> str:
        """The address as a client on another machine can type it."""
        host = self.names[0] if self.host in EVERYWHERE else self.host
        return f"http://[{host}]:{self.port}/" if ":" in host else f"http://{host}:{self.port}/"

    def knows(self, name: str) -> bool:
        """Return True for a name of this server, without its port. Other names are those of an attacker's page."""
        name = name.lower()
        return name in OWN_NAMES or name == self.host.lower() or name in {each.lower() for each in self.names}


def is_loopback(host: str) -> bool:
    """Return True for an address that only this machine reaches.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, False, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(file: Path | None) -> str | None:
    """The token in a file, or that in the environment, or None.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if file is None:
        return os.environ.get(TOKEN) or None
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {str(file)!r}: --token-file names a file that holds the token.")
    return file.read_text(encoding="utf-8").strip()


@dataclass(frozen=True)
class Limits:
    """Limits of a request, in each worker process.

    Args:
        size: Bytes of a body.
        rows: Inputs in a request.
        seconds: Time in which a body must arrive, and again in which its answer must be found.
        requests: Requests at once.
        client: Requests at once from one address.
        threads: Predictions at once.
        connections: Open connections, most of which may wait.

    Raises:
        ValueError: a limit that is not positive.
    """

    size: int = 10_000_000
    rows: int = 1_000
    seconds: float = 30.0
    requests: int = 128
    client: int = 64
    threads: int = 2
    connections: int = 512

    def __post_init__(self) -> None:
        require_positive("the limit of seconds", self.seconds)
        for name in ("size", "rows", "requests", "client", "threads", "connections"):
            require_whole(f"the limit of {name}", getattr(self, name))
