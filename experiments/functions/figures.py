"""Figures of this folder."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from osculate import plots
from osculate.plots import style


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
            error = rows.std(0, ddof=1) / len(rows) ** 0.5 if len(rows) > 1 else np.zeros(rows.shape[1])
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
