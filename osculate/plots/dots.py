"""Several ways to predict on several data sets: one panel a set, one dot a way, with its standard error."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from osculate.plots.style import BLUE, GREEN, GREY, INK, ORANGE, panels, title

#: A mean with its standard error.
Estimate = tuple[float, float]
#: How far below the best a dot is still drawn: in multiples of the distance of the median, and at most.
REACH, MOST = 4.0, 15.0


def _tint(way: str) -> str:
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
        _panel(ax, ways, every, others.get(name, {}), least)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
    for ax in axes.flat[len(values) :]:
        ax.set_visible(False)
    axes[0, 0].set_yticks(range(len(every)), every, fontsize=8)
    axes[0, 0].set_ylim(len(every) - 0.5, -0.5)
    for ax in axes.flat[max(0, len(values) - columns) : len(values)]:
        ax.set_xlabel(quantity, fontsize=9)
    title(figure, heading)
    return figure


def _panel(ax: Axes, ways: Mapping[str, Estimate], every: list[str], others: Mapping[str, float], least: float) -> None:
    means = np.array([mean for mean, _ in ways.values()])
    best, middle = means.max(), np.median(means)
    low = best - min(max(REACH * (best - middle), least), MOST)
    for way, (mean, error) in ways.items():
        height, tint = every.index(way), _tint(way)
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
