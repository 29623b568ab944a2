"""Figures of several documents: scores of methods by data set, and scores against the temperature."""

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import mean, median
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from osculate import plots
from osculate.plots import style

#: A mean with its standard error.
Estimate = tuple[float, float]
#: The lowest value drawn to scale lies this many times the distance of the median below the best, and at most MOST.
REACH, MOST = 4.0, 15.0
#: Smallest share of a panel's width for the other methods; a method that leaves them less is drawn at the edge.
SHARE = 0.25


def colours(ways: Sequence[str]) -> dict[str, str]:
    """Orange for MAP, blue for variational and linearised Laplace, green for the rest."""
    blue = [way for way in ways if way.startswith(("VL", "linearised")) or "own evidence" in way]
    return {way: style.ORANGE if way == "MAP" else style.BLUE if way in blue else style.GREEN for way in ways}


def dots(
    values: Mapping[str, Mapping[str, Estimate]],
    quantity: str,
    heading: str,
    published: Mapping[str, Mapping[str, float]] | None = None,
    least: float = 0.3,
) -> Figure:
    """Draw means with standard errors, one panel per data set. Higher is better; values far below the best are arrows.

    Args:
        values: Mean and standard error by panel and way to predict.
        quantity: Label of the horizontal axis.
        heading: Heading of the figure.
        published: Published values by panel and way; hollow dots.
        least: Smallest distance below the best that is drawn to scale.

    Raises:
        ValueError: there is no value.
    """
    values, published = {name: ways for name, ways in values.items() if ways}, published or {}
    if not values:
        raise ValueError("no values to draw: pass at least one, by data set and by way to predict.")
    every = list(dict.fromkeys(way for rows in (*values.values(), *published.values()) for way in rows))
    figure, axes = style.wrapped(len(values), 3, 4.1 if len(values) > 1 else 6.0, 0.9 + 0.2 * len(every), sharey=True)
    for ax, (name, ways) in zip(axes.flat, values.items(), strict=False):
        hollow = published.get(name, {})
        best, middle = max(m for m, _ in ways.values()), median(m for m, _ in ways.values())
        low = best - min(max(REACH * (best - middle), least), MOST)
        top = max([*(m + error for m, error in ways.values()), *hollow.values()])
        errors = {way: error for way, (_, error) in ways.items()}
        plots.dots(ax, {way: [m] for way, (m, _) in ways.items()}, every, colours(every), errors, (low, top))
        for way, value in hollow.items():
            if value >= low:
                ax.plot(value, every.index(way), "o", color=style.GREY, markerfacecolor="none", markersize=7)
        ax.set_xlim(low, top + 0.08 * (top - low))
        style.label(ax, name)
    style.label_outer(axes, quantity, "", len(values))
    return style.title(figure, heading)


def method_scores(numbers: Sequence[Any], scores: Sequence[str], heading: str) -> Figure:
    """Draw a dot per seed: one row of panels per data set, one column per score; sets side by side for a single score.

    Args:
        numbers: Numbers with ``row`` ("data set: method"), ``column`` (the score) and ``values``, one per seed.
        scores: Columns to show.
        heading: Heading of the figure.

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
    width = 3.4 + 0.05 * max(0, max(map(len, methods)) - 20)  # the labels of the rows stand in the first panel's room
    figure, axes = style.panels(*shape, width, 0.9 + 0.22 * len(methods), sharey=True)
    for ax, (name, score) in zip(axes.flat, product(sets, scores), strict=True):
        here = [number for number in shown if number.column == score and number.row.startswith(f"{name}: ")]
        values = {number.row.split(": ", 1)[1]: number.values for number in here}
        near = _near({method: mean(each) for method, each in values.items()})
        limits = (min(near), max(near)) if near else None
        plots.dots(ax, values, methods, colours(methods), limits=limits)
        ax.grid(axis="y", color=style.GREY, alpha=0.2)
        if beside or name == sets[0]:
            ax.set_title(name if beside else score, fontsize=10, color=style.INK)
        style.label(ax, None, score if beside else None)
    for row, name in zip(axes, sets, strict=False):
        style.label(row[0], y="" if beside else name)
    return style.title(figure, heading)


def _near(means: Mapping[str, float]) -> list[float]:
    """Return the means without outliers that would leave the others less than SHARE of the panel."""
    near = sorted(means.values())
    while len(near) > 3:
        middle = median(near)
        far = 0 if middle - near[0] > near[-1] - middle else -1
        others = near[1:] if far == 0 else near[:-1]
        if others[-1] - others[0] >= SHARE * (near[-1] - near[0]):
            break
        near = others
    return near


def against(
    quantity: str,
    values: Sequence[float],
    curves: Mapping[str, Mapping[str, Sequence[Sequence[float]]]],
    heading: str,
    marks: Mapping[str, float] | None = None,
) -> Figure:
    """Draw means over seeds with a band from lowest to highest: one panel per quantity, one curve per method.

    Args:
        quantity: Label of the horizontal axes.
        values: Values of this quantity (P,), on a logarithmic scale.
        curves: Values (S, P) by panel and method, one row per seed.
        heading: Heading of the figure.
        marks: Values of the quantity by name, dotted lines.

    Raises:
        ValueError: there is no panel, or a curve of another length.
    """
    if not curves:
        raise ValueError("no curves to draw: pass at least one panel of them.")
    figure, axes = style.panels(1, len(curves), 4.4, 3.6, sharex=True)
    tints = style.tints(method for methods in curves.values() for method in methods)
    for ax, (name, methods) in zip(axes[0], curves.items(), strict=True):
        found = {method: np.asarray(rows) for method, rows in methods.items()}
        for method, rows in found.items():
            if rows.ndim != 2 or rows.shape[1] != len(values):
                raise ValueError(
                    f"{name}, {method}: {len(values)} places on the axis and values of shape {rows.shape}; give one "
                    "row per seed."
                )
            plots.spread(ax, values, rows.min(0), rows.max(0), tints[method])
        means = {method: (values, rows.mean(0)) for method, rows in found.items()}
        plots.lines(ax, means, tints, markers=style.MARKERS, markersize=3.5)
        for words, value in (marks or {}).items():
            ax.axvline(value, color=style.GREY, linewidth=1, linestyle=":")
            how: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "center", "fontsize": 8, "color": style.INK}
            ax.annotate(words, (value, 0.62), xycoords=("data", "axes fraction"), **how)
        ax.set_xscale("log")
        style.label(ax, name, quantity)
    first = axes[0, 0]
    first.set_yscale("log")
    first.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    first.yaxis.set_major_formatter("{x:g}")
    first.yaxis.set_minor_formatter(NullFormatter())
    style.legend_below(figure, first)
    return style.title(figure, heading)


def candidates(
    found: Mapping[str, Mapping[str, float]], columns: tuple[str, str], named: Mapping[str, str], heading: str
) -> Figure:
    """One score against another, a dot for each candidate, with the names of some.

    Args:
        found: Scores by candidate and column.
        columns: Columns along x and along y, differences to the network.
        named: Candidates by the words that name them in the figure.
        heading: Heading of the figure.
    """
    figure, ((ax,),) = style.panels(1, 1, 6.4, 4.2)
    x, y = columns
    words = {candidate: word for word, candidate in named.items()}
    for name, scores in found.items():
        chosen = name in words
        ax.plot(scores[x], scores[y], "o", color=style.BLUE if chosen else style.GREY, markersize=8 if chosen else 5)
        if chosen:
            ax.annotate(words[name], (scores[x], scores[y]), (6, 4), textcoords="offset points", color=style.BLUE)
    ax.plot(0, 0, "o", color=style.ORANGE, markersize=8)
    ax.annotate("network", (0, 0), (6, 4), textcoords="offset points", color=style.ORANGE)
    style.plain(ax)
    style.label(ax, None, f"{x}, less that of the network", f"{y}, less that of the network")
    return style.title(figure, heading)


def beside_network(
    values: Mapping[str, Mapping[str, Sequence[float]]], chosen: str, heading: str, unit: str = ""
) -> Figure:
    """Differences of methods to their network over tasks, one panel a score; the diamond is the mean over tasks.

    Args:
        values: Differences by method and score, one per task.
        chosen: Method in another colour.
        heading: Heading of the figure.
        unit: Words below each panel.
    """
    names, scores = list(values), list(next(iter(values.values())))
    figure, axes = style.panels(1, len(scores), 4.0, 1.0 + 0.32 * len(names), sharey=True)
    for ax, score in zip(axes.flat, scores, strict=True):
        for row, name in enumerate(reversed(names)):
            each, colour = values[name][score], style.BLUE if name == chosen else style.GREY
            ax.plot(each, [row] * len(each), "o", color=colour, alpha=0.45, markersize=4)
            ax.plot(mean(each), row, "D", color=colour, markersize=7, markeredgecolor=style.WHITE)
        ax.axvline(0, color=style.ORANGE, linewidth=1)
        ax.set_yticks(range(len(names)), list(reversed(names)))
        style.plain(ax)
        style.label(ax, None, f"{score}{unit}")
    return style.title(figure, heading)


def deviations(counts: Mapping[str, Sequence[float]], ends: tuple[float, float], heading: str) -> Figure:
    """Histograms of standard deviations as steps on one axis, the first in orange.

    Args:
        counts: Counts in bins of equal width, by name.
        ends: Left end of the first and right end of the last bin.
        heading: Heading of the figure.
    """
    figure, ((ax,),) = style.panels(1, 1, 6.4, 3.6)
    for (name, values), colour in zip(counts.items(), (style.ORANGE, style.BLUE), strict=False):
        shares = np.asarray(values) / sum(values)
        ax.stairs(shares, np.linspace(*ends, len(values) + 1), color=colour, fill=True, alpha=0.45, label=name)
    ax.set_xlim(*ends)
    style.legend(ax)
    style.label(ax, None, "standard deviation of the margin, in logits", "share of the images")
    return style.title(figure, heading)
