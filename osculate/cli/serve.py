"""Answer requests for predictions over HTTP.

POST /predict takes JSON or CSV, GET /docs describes all routes. Only this machine can connect, unless --host is given
and a token is in the variable OSCULATE_TOKEN or --token-file. Nothing is written.
"""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path

from osculate.checks import require_library, require_positive, require_whole
from osculate.cli.predict import PosteriorOptions
from osculate.serving.settings import Access, Limits, read_token


@dataclass(frozen=True)
class AddressOptions:
    """The address, and messages.

    Args:
        host: Address to listen at; others than this machine's own need a token.
        port: Port; 0 takes a free one.
        allowed_hosts: Further names by which clients call this machine, separated by commas; by default none.
        token_file: File with the token of clients; by default the variable OSCULATE_TOKEN.
        progress: False to show no progress bars.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    allowed_hosts: str | None = None
    token_file: Path | None = None
    progress: bool = True

    @property
    def access(self) -> Access:
        """Address, names and token."""
        names = tuple(name for each in (self.allowed_hosts or "").split(",") if (name := each.strip()))
        return Access(self.host, self.port, names, read_token(self.token_file))


@dataclass(frozen=True)
class HeldOutOptions:
    """The data.

    Args:
        data: Your own data of the training, which outside of the folder of the run are read only if you name them; by
            default those of the run.
    """

    data: str | None = None


@dataclass(frozen=True)
class ServeOptions:
    """The service.

    Args:
        threshold: Score above which an input is out of distribution; by default the 95 % quantile of the run's held-out
            data.
        workers: Number of processes.
        threads: Number of predictions at once in each process.
        max_bytes: Bytes of a request at most.
        max_rows: Inputs in a request at most.
        max_seconds: Seconds for a request to arrive, and again for its answer.
        max_requests: Requests at once in each process, half of them from one address at most.
    """

    threshold: float | None = None
    workers: int = 1
    threads: int = Limits.threads
    max_bytes: int = Limits.size
    max_rows: int = Limits.rows
    max_seconds: float = Limits.seconds
    max_requests: int = Limits.requests

    @property
    def limits(self) -> Limits:
        """Limits of a request."""
        client = max(1, self.max_requests // 2)
        return Limits(self.max_bytes, self.max_rows, self.max_seconds, self.max_requests, client, self.threads)


PARTS = (PosteriorOptions, HeldOutOptions, ServeOptions, AddressOptions)
SUBJECT = "posterior"
#: It has no results to print as JSON.
REPORTS = False


def require_server() -> None:
    """Raise ImportError with the extra to install if a library of the server is missing."""
    require_library("fastapi", "servers")
    require_library("uvicorn", "servers")


def run(options: PosteriorOptions, data: HeldOutOptions, service: ServeOptions, address: AddressOptions) -> None:
    """Read the run, find the threshold, and serve."""
    require_server()
    from osculate.cli import served
    from osculate.serving.server import serve

    require_whole("--workers", service.workers)
    access, limits, threshold = address.access, service.limits, service.threshold
    if threshold is not None:
        require_positive("--threshold", threshold)
    model = served.opened(options)
    if model.score == served.NONE:
        print(f"nothing is marked as out of distribution, score {model.score}")
    elif threshold is None:
        try:
            name, (x, _) = served.held_out(served.data_of(model.card, options.folder, data.data), "validation")
            threshold = served.quantile(model.scores(x, address.progress))
            print(f"out of distribution: {model.score} above {threshold}, as for 5 % of {len(x):,} {name} data")
        except (OSError, ValueError) as error:
            warnings.warn(
                f"nothing is marked as out of distribution, for want of held-out data: {error} Or pass --threshold.",
                stacklevel=1,
            )

    def ready(url: str) -> None:
        print(
            f"{model.facts().kind}, inputs of shape {model.input_shape}: POST {url}predict, about all routes {url}docs"
        )
        if access.token is not None:
            print("Every request needs the header Authorization: Bearer, and the token.")
        print("Ctrl+C ends it.", flush=True)

    model = replace(model, threshold=threshold)
    serve(served.maker(model, service.workers), access, limits, service.workers, ready)
