"""Figures of several documents: scores of methods by data set, and what a temperature does."""

import statistics
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from osculate.plots.style import BLUE, GREEN, GREY, INK, ORANGE, colour, panels, title

#: A mean with its standard error.
Estimate = tuple[float, float]
#: How far below the best a dot is still drawn: in multiples of the distance of the median, and at most.
REACH, MOST = 4.0, 15.0


def _dots_tint(way: str) -> str:
    """Orange for the mode, blue for what is linearised at it, green for the rest."""
    if way == "MAP":
        return ORANGE
    return BLUE if way.startswith("linearised") or "own evidence" in way else GREEN


def dots(
    values: Mapping[str, Mapping[str, Estimate]],
    quantity: str,
    heading: str,
    others: Mapping[str, Mapping[str, float]] | None = None,
    least: float = 0.3,
) -> Figure:
    """Higher is better. What lies far below the best is an arrow at the edge, with its value.

    Args:
        values: by panel and way, mean and standard error.
        quantity: the words of the horizontal axis.
        heading: the figure's sentence.
        others: by panel and way, what somebody else has found; hollow dots.
        least: how far below the best a dot is drawn at least.

    Raises:
        ValueError: there is no value.
    """
    values = {name: ways for name, ways in values.items() if ways}
    if not values:
        raise ValueError("no values to draw: pass at least one, by data set and by way to predict.")
    others = others or {}
    every = list(dict.fromkeys(way for rows in (*values.values(), *others.values()) for way in rows))
    columns = min(3, len(values))
    rows = -(-len(values) // columns)
    figure, axes = panels(rows, columns, 4.1 if columns > 1 else 6.0, 0.9 + 0.2 * len(every), sharey=True)
    for ax, (name, ways) in zip(axes.flat, values.items(), strict=False):
        _dots_panel(ax, ways, every, others.get(name, {}), least)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
    for ax in axes.flat[len(values) :]:
        ax.set_visible(False)
    axes[0, 0].set_yticks(range(len(every)), every, fontsize=8)
    axes[0, 0].set_ylim(len(every) - 0.5, -0.5)
    for ax in axes.flat[max(0, len(values) - columns) : len(values)]:
        ax.set_xlabel(quantity, fontsize=9)
    title(figure, heading)
    return figure


def _dots_panel(
    ax: Axes, ways: Mapping[str, Estimate], every: list[str], others: Mapping[str, float], least: float
) -> None:
    means = np.array([mean for mean, _ in ways.values()])
    best, middle = means.max(), np.median(means)
    low = best - min(max(REACH * (best - middle), least), MOST)
    for way, (mean, error) in ways.items():
        height, tint = every.index(way), _dots_tint(way)
        if mean < low:
            ax.plot(low, height, "<", color=tint, markersize=6, clip_on=False)
            ax.annotate(
                f"{mean:,.0f}" if abs(mean) >= 100 else f"{mean:.3g}",
                (low, height),
                (7, 0),
                "data",
                "offset points",
                fontsize=7,
                va="center",
            )
        else:
            ax.errorbar(mean, height, xerr=error, fmt="o", color=tint, markersize=5, linewidth=1.4)
    for way, value in others.items():
        if value >= low:
            ax.plot(value, every.index(way), "o", color=GREY, markerfacecolor="none", markersize=7)
    top = max([*(mean + error for mean, error in ways.values()), *others.values()])
    ax.set_xlim(low, top + 0.08 * (top - low))
    ax.tick_params(labelsize=8)


#: The share of a panel's width that the others need so that a method far away is drawn to scale.
METHOD_SCORES_SHARE = 0.25


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
        _method_scores_panel(ax, {method: number.values for (data, method), number in pairs if data == name}, methods)
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


def _method_scores_panel(ax: Axes, values: Mapping[str, Sequence[float]], methods: Sequence[str]) -> None:
    """A dot a seed and a stroke for their mean; what is far from all others is told at the edge."""
    means = {method: statistics.mean(each) for method, each in values.items()}
    far, middle = _method_scores_far(means), median(means.values()) if means else 0.0
    for method, each in values.items():
        height, tint = methods.index(method), _method_scores_tint(method)
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


def _method_scores_far(means: Mapping[str, float]) -> set[str]:
    """The methods beside which all others would fall together."""
    near = dict(means)
    while len(near) > 3:
        middle = median(near.values())
        last = max(near, key=lambda method: abs(near[method] - middle))
        others = [value for method, value in near.items() if method != last]
        if max(others) - min(others) >= METHOD_SCORES_SHARE * (max(near.values()) - min(near.values())):
            break
        del near[last]
    return set(means) - set(near)


def _method_scores_tint(method: str) -> str:
    """Blue for variational Laplace, orange for MAP, green for the rest."""
    return BLUE if method.startswith("VL") else ORANGE if method == "MAP" else GREEN


def against_temperature(
    temperatures: Sequence[float],
    curves: Mapping[str, Mapping[str, Sequence[Sequence[float]]]],
    heading: str,
    marks: Mapping[str, float] | None = None,
) -> Figure:
    """Means over seeds, with a band from the lowest to the highest.

    Args:
        temperatures: T of the points (P,).
        curves: by panel and method, one row a seed (S, P).
        heading: the figure's sentence.
        marks: temperatures with a name of their own, dotted lines.

    Raises:
        ValueError: there is no panel, or a curve of another length.
    """
    if not curves:
        raise ValueError("no curves to draw: pass at least one panel of them.")
    figure, axes = panels(1, len(curves), 4.4, 3.6, sharex=True)
    for ax, (name, methods) in zip(axes[0], curves.items(), strict=True):
        for index, (method, rows) in enumerate(methods.items()):
            values = np.asarray(rows)
            if values.ndim != 2 or values.shape[1] != len(temperatures):
                raise ValueError(
                    f"{name}, {method}: {len(temperatures)} temperatures and values of shape {values.shape}; give one "
                    "row a seed."
                )
            tint = colour(method, index)
            ax.plot(temperatures, values.mean(0), "o-", markersize=3, linewidth=1.4, color=tint, label=method)
            ax.fill_between(temperatures, values.min(0), values.max(0), color=tint, alpha=0.18, linewidth=0)
        for label, value in (marks or {}).items():
            ax.axvline(value, color=GREY, linewidth=1, linestyle=":")
            ax.annotate(
                label,
                (value, 0.62),
                xycoords=("data", "axes fraction"),
                fontsize=7,
                color=GREY,
                rotation=90,
                ha="right",
                va="center",
            )
        ax.set_xscale("log")
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ax.set_xlabel("temperature T of the posterior", fontsize=9)
    first = axes[0, 0]
    first.set_yscale("log")
    first.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    first.yaxis.set_major_formatter("{x:g}")
    first.yaxis.set_minor_formatter(NullFormatter())
    first.legend(fontsize=8, frameon=False, loc="upper left")
    title(figure, heading)
    return figure
