"""Scores in tables: their headings, order and formats."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

#: Headings of the scores of inputs by themselves, or by their place among training inputs.
ALONE = {
    "auroc_mean_pixel": "mean pixel",
    "auroc_unlit_pixels": "never lit ↑",
    "auroc_diagonal_leverage": "diag. leverage ↑",
    "auroc_leverage": "leverage ↑",
    "auroc_nearest_input": "nearest input ↑",
    "auroc_principal_components": "PCA ↑",
}
#: Headings of the scores, in the order of the columns; scores without a heading are not shown.
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
    "log_density": "log p(x|code), nats ↑",
    "log_p": "bound, nats",
    "psnr": "PSNR, dB ↑",
    "pixel_rmse": "pixel error ↓",
    "error_correlation": "error bar and error ↑",
    "sigma": "noise",
    "mean_stddev": "error bar",
    "residual": "residual² / noise²",
    "pixel_log_density": "log density, nats per pixel ↑",
    "mse": "hidden pixels, MSE ↓",
    "modes": "classes seen",
    "auroc_nll": "−log p(x) ↑",
    "auroc_latent_deviation": "σ of code ↑",
    "auroc_output_deviation": "σ of image ↑",
    **ALONE,
}


@dataclass(frozen=True)
class Score:
    """A score over seeds: mean, and standard error if there are several seeds."""

    mean: float
    error: float | None = None

    @classmethod
    def over(cls, values: list[float]) -> "Score":
        """Summarise the values of several seeds."""
        return cls(mean(values), stdev(values) / sqrt(len(values)) if len(values) > 1 else None)

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if self.error is None else f"{self.mean:.3f} ± {self.error:.3f}"


class Measure(Score):
    """A number in units of the data, with three significant digits."""

    def __str__(self) -> str:
        return f"{self.mean:.3g}"


@dataclass(frozen=True)
class Change(Score):
    """The difference of two scores."""

    def __str__(self) -> str:
        return f"{self.mean:+.3f}" if self.error is None else f"{self.mean:+.3f} ± {self.error:.3f}"


def title(score: str) -> str | None:
    """The heading of a score, or None if tables omit it.

    >>> title("auroc/shuffled pixels/entropy"), title("accuracy/5")
    ('AUROC, shuffled pixels ↑', '5 labels ↑')
    """
    if score.startswith("auroc/"):
        name, _, kind = score.removeprefix("auroc/").rpartition("/")  # a name may be a path
        return f"AUROC, {name} ↑" if kind == "entropy" else None
    _, few, number = score.rpartition("accuracy/")
    if few and number.isdigit():
        return f"{number} label{'s' * (number != '1')} ↑"
    return TITLES.get(score)


def columns(rows: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    """The scores of all rows that have a heading, with their headings, in order."""
    found = {name for row in rows.values() for name in row}
    ordered = [name for name in TITLES if name in found]
    ordered += [name for row in rows.values() for name in row if name.startswith(("auroc/", "accuracy/"))]
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
    """The console; wide enough for every table if the output is a file or a pipe."""
    found = Console()
    return found if found.is_terminal else Console(width=120)


def print_scores(caption: str, scores: Mapping[str, Mapping[str, float]]) -> None:
    """Print one table of scores, with their standard errors from the entries ``NAME_error``."""
    console().print(table(caption, {label: with_errors(row) for label, row in scores.items()}))


def parted(rows: Mapping[str, Mapping[str, float]], caption: str, alone: str) -> dict[str, dict[str, dict[str, float]]]:
    """The scores of a network under the caption, and those of the inputs alone under their own.

    >>> parted({"KMNIST": {"auroc_nll": 0.8, "auroc_leverage": 0.9}}, "AUROC", "alone")["AUROC"]
    {'KMNIST': {'auroc_nll': 0.8}}
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, row in rows.items():
        for score, value in row.items():
            words = alone if score.removesuffix("_error") in ALONE else caption
            found.setdefault(words, {}).setdefault(name, {})[score] = value
    return found


def with_errors(row: Mapping[str, float]) -> dict[str, Score]:
    """Scores with their standard errors from the entries ``NAME_error``.

    >>> with_errors({"pixel_rmse": 0.2, "pixel_rmse_error": 0.01})["pixel_rmse"]
    Score(mean=0.2, error=0.01)
    """
    return {name: Score(value, row.get(f"{name}_error")) for name, value in row.items() if not name.endswith("_error")}


def error_entries(prefix: str, values: Mapping[Any, float], errors: Mapping[Any, float]) -> dict[str, float]:
    """Scores under a prefix, and their standard errors as entries ``NAME_error``.

    >>> error_entries("accuracy/", {5: 0.9}, {5: 0.01})
    {'accuracy/5': 0.9, 'accuracy/5_error': 0.01}
    """
    named = {f"{prefix}{name}": value for name, value in values.items()}
    return named | {f"{prefix}{name}_error": error for name, error in errors.items()}
