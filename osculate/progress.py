"""Progress bars and wall-clock times of whatever takes more than a few seconds."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from osculate.checks import require_library

T = TypeVar("T")


def track(items: Iterable[T], title: str, total: int | None, show: bool) -> Iterator[T]:
    """Yield the items; with ``show``, beside a progress bar with count, rate and remaining time.

    Raises:
        ImportError: ``show`` without rich.

    >>> list(track(range(3), "counting", 3, show=False))
    [0, 1, 2]
    """
    if not show:
        yield from items
        return
    require_library("rich", "progress bars")
    from rich import progress
    from rich.text import Text

    class Rate(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            return Text(f"{task.speed:.1f}/s" if task.speed else "")

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        Rate(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns) as bar:
        yield from bar.track(items, total=total, description=title)


class Clock:
    """The wall-clock time of each step.

    Args:
        say: Function that announces a step in words.
    """

    def __init__(self, say: Callable[[str], object] = lambda words: None) -> None:
        self.seconds: dict[str, float] = {}
        #: The words before each announcement.
        self.prefix = ""
        self._say = say

    @contextmanager
    def step(self, name: str, words: str = "") -> Iterator[None]:
        """Announce a step, and add to its time what passes within."""
        self._say(self.prefix + words)
        started = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
