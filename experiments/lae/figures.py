"""Figures of Laplacian autoencoders: cost against size."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from osculate import plots
from osculate.plots import style

#: Names of the methods in the legend.
_NAMES = {
    "block": "block diagonal",
    "kron": "KFAC",
    "diag": "exact diagonal",
    "approx_diag": "approximate diagonal",
    "mixed_diag": "mixed diagonal",
    "BackPACK diag": "exact diagonal by BackPACK",
    "online, convolutions": "online Laplace, convolutions",
    "online, residual": "online Laplace, residual blocks",
    "MAP, residual": "MAP, residual blocks",
}
#: Largest ratio of the ends of an axis that has labels between the powers of ten.
FEW = 60


def costs(panels: Mapping[str, tuple[str, Mapping[str, Any]]], heading: str) -> Figure:
    """Costs on logarithmic axes beside linear and quadratic growth; a cross marks where a curve was stopped.

    Args:
        panels: Kind of cost ("time" or "memory") and recorded curves by method, by panel.
        heading: Heading of the figure.

    Raises:
        ValueError: there is no curve.
    """
    if not any(curve["sizes"] for _, curves in panels.values() for curve in curves.values()):
        raise ValueError("no curve to draw: pass at least one with a size and a cost.")
    figure, axes = style.wrapped(len(panels), 2, 4.6, 3.4)
    methods = list(dict.fromkeys(method for _, curves in panels.values() for method in curves))
    tints = style.tints(methods)
    how: dict[str, dict[str, Any]] = {
        method: {"label": _NAMES.get(method, method), "color": tints[method], "marker": marker}
        for method, marker in zip(methods, cycle(style.MARKERS), strict=False)
    }
    stopped = False
    for ax, (name, (kind, curves)) in zip(axes.flat, panels.items(), strict=False):
        ax.set(xscale="log", yscale="log")
        for method, curve in curves.items():
            sizes, costs = curve["sizes"], [value / 1e6 for value in curve["peak_bytes"]]
            if kind == "time":
                costs = [sum(values) / len(values) for values in curve["seconds"]]
            plots.lines(ax, {method: (sizes, costs)}, **how[method])
            if curve["stopped"] and sizes:
                stopped = True
                ax.plot(sizes[-1:], costs[-1:], "x", color=how[method]["color"], markersize=11, markeredgewidth=2)
        # growth from the lower left of the panel
        every = [size for curve in curves.values() for size in curve["sizes"]]
        ends = min(every), max(every)
        low, high = ax.get_ylim()
        for power, dash in ((1, ":"), (2, "--")):
            growth = [low * 1.5, low * 1.5 * (ends[1] / ends[0]) ** power]
            ax.plot(ends, growth, dash, color=style.GREY, linewidth=1, zorder=1)
        ax.set_ylim(low, high)
        for axis in (ax.xaxis, ax.yaxis):
            first, last = axis.get_view_interval()
            if last / first < FEW:  # too few powers of ten to read a value from
                axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axis.set_major_formatter("{x:,g}")
            axis.set_minor_formatter(NullFormatter())
        words = "parameters" if name.endswith("parameters") else "pixels of an image"
        style.label(ax, name, words, "CPU seconds" if kind == "time" else "peak memory, MB")
    handles = [Line2D([], [], markersize=4.5, **how[method]) for method in methods]
    if stopped:
        cross: dict[str, Any] = {"color": style.GREY, "marker": "x", "linestyle": "", "markersize": 9}
        handles.append(Line2D([], [], label="stopped: the next size exceeds a limit", **cross))
    handles += [
        Line2D([], [], color=style.GREY, linestyle=":", label="linear growth"),
        Line2D([], [], color=style.GREY, linestyle="--", label="quadratic growth"),
    ]
    style.legend_below(figure, handles, 3)
    return style.title(figure, heading)
