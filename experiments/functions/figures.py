"""Figures of this folder."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from osculate import plots
from osculate.plots import style


def averages(
    curves: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], level: str, colours: Mapping[str, str], heading: str
) -> Figure:
    """Draw accuracy against the number of tasks learned, one panel a sequence, with standard errors over seeds.

    Args:
        curves: Accuracies (S, T) in percent by panel and method, one row per seed; of the level (S, 1).
        level: Method that does not learn tasks one after another, a dashed line.
        colours: Colours by method.
        heading: Heading of the figure.
    """
    figure, axes = style.panels(1, len(curves), 4.9, 4.0)
    for ax, (name, methods) in zip(axes[0], curves.items(), strict=True):
        shown = {method: np.asarray(rows) for method, rows in methods.items()}
        top = shown.pop(level)
        tasks = range(1, next(iter(shown.values())).shape[1] + 1)
        ax.axhline(top.mean(), linestyle="--", linewidth=1.4, color=colours[level], label=level)
        means = {method: (tasks, rows.mean(0)) for method, rows in shown.items()}
        errors = {method: _errors(rows) for method, rows in shown.items()}
        plots.lines(ax, means, colours, markers=style.MARKERS, errors=errors)
        ax.set_xticks(list(tasks))
        style.label(ax, name)
    style.label_outer(axes, "tasks learned so far", "accuracy, averaged over these tasks, %")
    style.legend_below(figure, axes[0, 0], 3, 8.5)
    return style.title(figure, heading)


def learning_curves(
    labels: Sequence[int], curves: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], heading: str
) -> Figure:
    """Draw mean accuracies with a band of one standard error, one panel a pool; the first rule is the baseline.

    Args:
        labels: Numbers of labels (R,).
        curves: Accuracies (S, R) by pool and rule, one row per seed.
        heading: Heading of the figure.
    """
    figure, axes = style.panels(1, len(curves), 4.6, 4.2)
    rules = list(next(iter(curves.values())))
    colours = dict(zip(rules, (style.INK, style.ORANGE, style.GREEN, style.BLUE, style.PURPLE), strict=False))
    for ax, (pool, every) in zip(axes[0], curves.items(), strict=True):
        values = {rule: np.asarray(rows) for rule, rows in every.items()}
        for rule, rows in values.items():
            error = _errors(rows)
            plots.spread(ax, labels, rows.mean(0) - error, rows.mean(0) + error, colours[rule], 0.12)
        means = {rule: (labels, rows.mean(0)) for rule, rows in values.items()}
        plots.lines(ax, means, colours, markers=style.MARKERS, markersize=3.5)
        final = float(values[rules[0]].mean(0)[-1])
        ax.axhline(final, color=style.GREY, linewidth=1, linestyle="--")
        words = f"{rules[0]}, all labels: {final:.1%}"
        ax.annotate(words, (labels[0], final), (0, 4), "data", "offset points", fontsize=8, color=style.INK)
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        style.label(ax, pool, "number of labels")
    style.label(axes[0, 0], y="test accuracy (bands: one standard error over seeds)")
    style.legend_below(figure, axes[0, 0], 3, 9)
    return style.title(figure, heading)


def _errors(rows: np.ndarray) -> np.ndarray:
    """The standard error of the mean over rows, zero for a single one."""
    return rows.std(0, ddof=1) / len(rows) ** 0.5 if len(rows) > 1 else 0 * rows[0]
