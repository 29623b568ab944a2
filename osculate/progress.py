"""Progress bars on everything that takes more than a few seconds."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

T = TypeVar("T")


class _Rate(ProgressColumn):
    """Steps a second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "")


def track(items: Iterable[T], title: str, total: int | None, show: bool) -> Iterator[T]:
    """Yield the items, with a bar that shows count, rate and time left where ``show``.

    >>> list(track(range(3), "counting", 3, show=False))
    [0, 1, 2]
    """
    if not show:
        yield from items
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as progress:
        yield from progress.track(items, total=total, description=title)
