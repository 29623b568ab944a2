"""Predictions in threads, which stop when nobody waits for them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

T = TypeVar("T")


class Abandoned(Exception):
    """Nobody waits for the result of a computation."""


class Work:
    """Threads that compute, as many as may compute at once; others wait.

    Args:
        threads: Number of threads.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="prediction")

    async def run(self, function: Callable[[Callable[[], None]], T]) -> T:
        """Compute in a thread.

        If the task is cancelled, the computation is too: at its start, or where it asks.

        Args:
            function: Function of a function that raises :class:`Abandoned` if nobody waits any more, which it calls
                now and then.
        """
        gone = Event()

        def ask() -> None:
            if gone.is_set():
                raise Abandoned

        def compute() -> T:
            ask()
            return function(ask)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, compute)
        finally:
            gone.set()

    def close(self) -> None:
        """Let the threads end."""
        self._pool.shutdown(wait=False, cancel_futures=True)
