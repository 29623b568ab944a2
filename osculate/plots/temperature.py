"""What a temperature does: one panel a quantity, one curve a method, on a logarithmic axis."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from osculate.plots.style import GREY, INK, colour, panels, title


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
