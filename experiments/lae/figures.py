"""Figures of Laplacian autoencoders: cost against size."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from osculate.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, YELLOW, panels, title

#: Of each method: what a reader calls it, and its colour.
_SCALING_METHODS = {
    "block": ("block diagonal", INK),
    "kron": ("KFAC", GREEN),
    "diag": ("exact diagonal", PURPLE),
    "approx_diag": ("approximate diagonal", BLUE),
    "mixed_diag": ("mixed diagonal", YELLOW),
    "BackPACK diag": ("exact diagonal by BackPACK", ORANGE),
    "online, convolutions": ("online Laplace, convolutions", BLUE),
    "MAP, convolutions": ("MAP, convolutions", GREEN),
    "online, residual": ("online Laplace, residual blocks", PURPLE),
    "MAP, residual": ("MAP, residual blocks", ORANGE),
}
_SCALING_MARKERS = "os^Dvp"
#: An axis whose ends are a smaller factor apart has labels between the powers of ten.
SCALING_FEW = 60

Points = tuple[Sequence[float | int], Sequence[float | int], str]


def scaling(curves: Mapping[str, Mapping[str, Points]], labels: Mapping[str, tuple[str, str]], heading: str) -> Figure:
    """One panel a quantity, one curve a method; a cross marks where a curve was stopped.

    Args:
        curves: by panel and method, the sizes (S,), the costs (S,), and why there are no larger sizes (or nothing).
        labels: by panel, the words of both axes.
        heading: the figure's sentence.

    Raises:
        ValueError: there is no curve.
    """
    if not any(any(points[0] for points in panel.values()) for panel in curves.values()):
        raise ValueError("no curve to draw: pass at least one with a size and a cost.")
    columns = min(2, len(curves))
    figure, axes = panels(-(-len(curves) // columns), columns, 4.6, 3.4)
    for ax, (name, panel) in zip(axes.flat, curves.items(), strict=False):
        _scaling_panel(ax, panel)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ax.set_xlabel(labels[name][0], fontsize=9)
        ax.set_ylabel(labels[name][1], fontsize=9)
    for ax in axes.flat[len(curves) :]:
        ax.set_visible(False)
    stopped = any(points[2] for panel in curves.values() for points in panel.values())
    _scaling_legend(figure, list(dict.fromkeys(method for panel in curves.values() for method in panel)), stopped)
    title(figure, heading)
    return figure


def _scaling_style(method: str) -> dict[str, Any]:
    label, tint = _SCALING_METHODS.get(method, (method, GREY))
    number = list(_SCALING_METHODS).index(method) if method in _SCALING_METHODS else 0
    return {"label": label, "color": tint, "marker": _SCALING_MARKERS[number % len(_SCALING_MARKERS)]}


def _scaling_panel(ax: Axes, panel: Mapping[str, Points]) -> None:
    ax.set(xscale="log", yscale="log")
    for method, (sizes, costs, stopped) in panel.items():
        style = _scaling_style(method)
        ax.plot(sizes, costs, markersize=4.5, linewidth=1.6, **style)
        if stopped and len(sizes):
            ax.plot(sizes[-1:], costs[-1:], "x", color=style["color"], markersize=11, markeredgewidth=2)
    _scaling_growth(ax, panel)
    for axis in (ax.xaxis, ax.yaxis):
        low, high = axis.get_view_interval()
        if high / low < SCALING_FEW:  # too few powers of ten to read a value from
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter("{x:,g}")
        axis.set_minor_formatter(NullFormatter())


def _scaling_growth(ax: Axes, panel: Mapping[str, Points]) -> None:
    """Lines of linear and of quadratic growth from the lower left of the panel."""
    sizes = np.array([min(s for p in panel.values() for s in p[0]), max(s for p in panel.values() for s in p[0])])
    low, high = ax.get_ylim()
    for power, style in ((1, ":"), (2, "--")):
        line = low * 1.5 * (sizes / sizes[0]) ** power
        ax.plot(sizes, line, style, color=GREY, linewidth=1, zorder=1)
    ax.set_ylim(low, high)


def _scaling_legend(figure: Figure, methods: Sequence[str], stopped: bool) -> None:
    handles = [Line2D([], [], markersize=4.5, **_scaling_style(method)) for method in methods]
    if stopped:
        cross: dict[str, Any] = {"color": GREY, "marker": "x", "linestyle": "", "markersize": 9}
        handles.append(Line2D([], [], label="stopped: the next is beyond a limit", **cross))
    handles += [
        Line2D([], [], color=GREY, linestyle=":", label="linear growth"),
        Line2D([], [], color=GREY, linestyle="--", label="quadratic growth"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
