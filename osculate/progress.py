"""Progress bars for whatever takes more than a few seconds."""

from collections.abc import Iterable, Iterator
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
