"""Figures of this folder."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

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


def _errors(rows: np.ndarray) -> np.ndarray:
    """The standard error of the mean over rows, zero for a single one."""
    return rows.std(0, ddof=1) / len(rows) ** 0.5 if len(rows) > 1 else 0 * rows[0]
