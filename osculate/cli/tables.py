"""Numbers for people: which scores there are, what they are called, and tables of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev

from rich import box
from rich.console import Console
from rich.table import Table

#: What the scores are called, in the order of the columns; scores without a title are not shown.
TITLES = {
    "accuracy": "accuracy ↑",
    "nll": "NLL ↓",
    "ece": "ECE ↓",
    "brier": "Brier ↓",
    "rmse": "RMSE ↓",
    "log_likelihood": "log lik. ↑",
    "log_likelihood_gap": "… in the gap ↑",
    "coverage_95": "95 % covers",
    "coverage_95_gap": "… in the gap",
}


@dataclass(frozen=True)
class Score:
    """A score over seeds: mean, and standard error where there are several."""

    mean: float
    error: float | None = None

    @classmethod
    def over(cls, values: list[float]) -> "Score":
        """Summarise the values of several seeds."""
        return cls(mean(values), stdev(values) / sqrt(len(values)) if len(values) > 1 else None)

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if self.error is None else f"{self.mean:.3f} ± {self.error:.3f}"


def title(score: str) -> str | None:
    """The heading of a score, or None for one that tables leave out.

    >>> title("auroc/shuffled pixels/entropy")
    'AUROC, shuffled pixels ↑'
    """
    if score.startswith("auroc/"):
        _, name, kind = score.split("/")
        return f"AUROC, {name} ↑" if kind == "entropy" else None
    return TITLES.get(score)


def columns(rows: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    """The scores that any row has and that have a title, with their headings, in order."""
    found = {name for row in rows.values() for name in row}
    ordered = [name for name in TITLES if name in found]
    ordered += [name for row in rows.values() for name in row if name.startswith("auroc/") and name not in TITLES]
    return {name: heading for name in dict.fromkeys(ordered) if (heading := title(name)) is not None}


def table(caption: str, rows: Mapping[str, Mapping[str, Score]]) -> Table:
    """A rich table with one row for each method."""
    result = Table(
        title=caption,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    result.add_column("", no_wrap=True)
    headings = columns(rows)
    for heading in headings.values():
        result.add_column(heading, justify="right", overflow="fold")
    for label, row in rows.items():
        result.add_row(label, *(str(row[name]) if name in row else "" for name in headings))
    return result


def console() -> Console:
    """The terminal; where the output goes to a file or a pipe, wide enough for every table."""
    found = Console()
    return found if found.is_terminal else Console(width=120)


def print_scores(caption: str, scores: Mapping[str, Mapping[str, float]]) -> None:
    """Print one table of scores."""
    rows = {label: {name: Score(value) for name, value in row.items()} for label, row in scores.items()}
    console().print(table(caption, rows))
