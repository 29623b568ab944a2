"""Scores of several methods on several data sets: one panel a data set and score, a dot for each seed."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from osculate.plots.style import BLUE, GREEN, GREY, INK, ORANGE, panels, title


def method_scores(numbers: Sequence[Any], scores: Sequence[str], heading: str) -> Figure:
    """One row of panels a data set, one column a score.

    Args:
        numbers: with ``row`` ("data set: method"), ``column`` (the score) and ``values``, one a seed.
        scores: the columns that are shown.
        heading: the figure's sentence.

    Raises:
        ValueError: there is no value.
    """
    shown = [number for number in numbers if number.column in scores and number.values]
    if not shown:
        raise ValueError("no values to draw: pass at least one score of one method.")
    sets = list(dict.fromkeys(number.row.split(": ")[0] for number in shown))
    methods = list(dict.fromkeys(number.row.split(": ", 1)[1] for number in shown))
    figure, axes = panels(len(sets), len(scores), 3.4, 0.9 + 0.22 * len(methods), sharey=True)
    for row, name in zip(axes, sets, strict=True):
        for ax, score in zip(row, scores, strict=True):
            for number in shown:
                data, method = number.row.split(": ", 1)
                if (data, number.column) != (name, score):
                    continue
                height, tint = methods.index(method), _tint(method)
                ax.plot(number.values, [height] * len(number.values), "o", color=tint, markersize=4, alpha=0.5)
                ax.plot(sum(number.values) / len(number.values), height, "|", color=tint, markersize=14, mew=2)
            ax.grid(axis="y", color=GREY, alpha=0.2)
            ax.tick_params(labelsize=8)
            if name == sets[0]:
                ax.set_title(score, fontsize=10, color=INK)
        row[0].set_ylabel(name, fontsize=9)
        row[0].set_yticks(range(len(methods)), methods, fontsize=8)
        row[0].set_ylim(len(methods) - 0.5, -0.5)
    title(figure, heading)
    return figure


def _tint(method: str) -> str:
    """Blue for variational Laplace, orange for MAP, green for the rest."""
    return BLUE if method.startswith("VL") else ORANGE if method == "MAP" else GREEN
