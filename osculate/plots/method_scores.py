"""Scores of several methods on several data sets: one panel a data set and score, a dot for each seed."""

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import mean, median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from osculate.plots.style import BLUE, GREEN, GREY, INK, ORANGE, panels, title

#: The share of a panel's width that the others need so that a method far away is drawn to scale.
SHARE = 0.25


def method_scores(numbers: Sequence[Any], scores: Sequence[str], heading: str) -> Figure:
    """One row of panels a data set, one column a score; data sets side by side for a single score.

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
    beside = len(scores) == 1
    shape = (1, len(sets)) if beside else (len(sets), len(scores))
    figure, axes = panels(*shape, 3.4, 0.9 + 0.22 * len(methods), sharey=True)
    for ax, (name, score) in zip(axes.flat, product(sets, scores), strict=True):
        pairs = [(number.row.split(": ", 1), number) for number in shown if number.column == score]
        _panel(ax, {method: number.values for (data, method), number in pairs if data == name}, methods)
        if beside or name == sets[0]:
            ax.set_title(name if beside else score, fontsize=10, color=INK)
        if beside:
            ax.set_xlabel(score, fontsize=9)
    for row, name in zip(axes, sets, strict=False):
        row[0].set_ylabel("" if beside else name, fontsize=9)
        row[0].set_yticks(range(len(methods)), methods, fontsize=8)
        row[0].set_ylim(len(methods) - 0.5, -0.5)
    title(figure, heading)
    return figure


def _panel(ax: Axes, values: Mapping[str, Sequence[float]], methods: Sequence[str]) -> None:
    """A dot a seed and a stroke for their mean; what is far from all others is told at the edge."""
    means = {method: mean(each) for method, each in values.items()}
    far, middle = _far(means), median(means.values()) if means else 0.0
    for method, each in values.items():
        height, tint = methods.index(method), _tint(method)
        if method in far:
            right = means[method] > middle
            ax.annotate(
                f"{means[method]:.3g} →" if right else f"← {means[method]:.3g}",
                (0.98 if right else 0.02, height),
                xycoords=ax.get_yaxis_transform(),
                ha="right" if right else "left",
                va="center",
                color=tint,
                fontsize=8,
            )
            continue
        ax.plot(each, [height] * len(each), "o", color=tint, markersize=4, alpha=0.5)
        ax.plot(means[method], height, "|", color=tint, markersize=14, mew=2)
    ax.grid(axis="y", color=GREY, alpha=0.2)
    ax.tick_params(labelsize=8)


def _far(means: Mapping[str, float]) -> set[str]:
    """The methods beside which all others would fall together."""
    near = dict(means)
    while len(near) > 3:
        middle = median(near.values())
        last = max(near, key=lambda method: abs(near[method] - middle))
        others = [value for method, value in near.items() if method != last]
        if max(others) - min(others) >= SHARE * (max(near.values()) - min(near.values())):
            break
        del near[last]
    return set(means) - set(near)


def _tint(method: str) -> str:
    """Blue for variational Laplace, orange for MAP, green for the rest."""
    return BLUE if method.startswith("VL") else ORANGE if method == "MAP" else GREEN
