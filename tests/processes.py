"""Processes of a torch.distributed group that run functions of a test module together."""

import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

#: Seconds that a process waits for the others, and a test for an answer.
TIMEOUT, PATIENCE = 10, 120


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Processes:
    """A few processes; :meth:`run` calls a function in each, and returns what each returned or raised as text."""

    def __init__(self, size: int) -> None:
        self.size, context = size, multiprocessing.get_context("spawn")
        self._inboxes = [context.SimpleQueue() for _ in range(size)]
        self._outbox = context.Queue()
        port = free_port()
        self.each = [
            context.Process(target=_serve, args=(rank, size, port, self._inboxes[rank], self._outbox), daemon=True)
            for rank in range(size)
        ]
        for process in self.each:
            process.start()

    def run(self, function: Callable, *args: Any, among: list[int] | None = None, answers: int | None = None) -> dict:
        """Call ``function(rank, size, *args)``.

        Args:
            function: A function of a module.
            *args: Its further arguments.
            among: Ranks that make the call, by default all.
            answers: Number of answers to wait for, by default one from each.
        """
        ranks = list(range(self.size)) if among is None else among
        for rank in ranks:
            self._inboxes[rank].put((function, args))
        return dict(self._outbox.get(timeout=PATIENCE) for _ in range(len(ranks) if answers is None else answers))

    def close(self) -> None:
        for process in self.each:
            process.kill()
            process.join()


def _serve(rank: int, size: int, port: int, inbox: Any, outbox: Any) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCH_CPP_LOG_LEVEL": "FATAL"}
    dist.init_process_group("gloo", rank=rank, world_size=size, timeout=timedelta(seconds=TIMEOUT))
    while True:
        function, args = inbox.get()
        try:
            outbox.put((rank, function(rank, size, *args)))
        except Exception:
            outbox.put((rank, traceback.format_exc()))


def kill_after(victim: int, file: Path) -> None:
    """Kill a process, in a while, soon after a file was written."""

    def wait() -> None:
        while not file.exists():
            time.sleep(0.05)
        time.sleep(0.7)
        os.kill(victim, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def processes(size: int) -> Iterator[Processes]:
    found = Processes(size)
    try:
        yield found
    finally:
        found.close()
