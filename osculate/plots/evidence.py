"""What the evidence does to a network on a line, and how γ and the evidence go with its width."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from osculate.plots.style import BLUE, GREY, INK, ORANGE, panels, title


def evidence_of_widths(
    curves: Mapping[str, Any],
    sweeps: Mapping[str, Mapping[int, Sequence[float]]],
    sizes: Mapping[int, float],
    heading: str,
) -> Figure:
    """Two fits to the same points above; below, quantities against the number of hidden units.

    Args:
        curves: inputs "x" (G,), the true function "sine" (G,), points "data" (2, N), and "bands": by name "mean" and
            "sd" (G,).
        sweeps: by quantity and width, a value a seed.
        sizes: number of parameters by width.
        heading: the figure's sentence.

    Raises:
        ValueError: not two fits, or not two quantities.
    """
    if len(curves["bands"]) != 2 or len(sweeps) != 2:
        raise ValueError(f"two fits and two quantities are drawn, got {len(curves['bands'])} and {len(sweeps)}.")
    figure, axes = panels(2, 2, 4.6, 3.0)
    for ax, (name, band), tint in zip(axes[0], curves["bands"].items(), (ORANGE, BLUE), strict=True):
        _fit(ax, curves, band, tint)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ax.set_xlabel("input x", fontsize=9)
    axes[0, 0].set_ylabel("output y", fontsize=9)
    axes[0, 1].legend(fontsize=8, frameon=False, loc="best")
    for ax, (name, by_width) in zip(axes[1], sweeps.items(), strict=True):
        _sweep(ax, by_width)
        ax.set_title(f"{name} against the width", fontsize=10, color=INK, loc="left")
        ax.set_xlabel("hidden units", fontsize=9)
    axes[1, 0].plot(list(sizes), list(sizes.values()), "--", color=GREY, linewidth=1, label="number of parameters")
    top = max(max(values) for values in next(iter(sweeps.values())).values())
    axes[1, 0].set_ylim(0, 3 * top)
    axes[1, 0].legend(fontsize=8, frameon=False, loc="upper right")
    axes[1, 1].set_ylabel("nats", fontsize=9)
    title(figure, heading)
    return figure


def _fit(ax: Axes, curves: Mapping[str, Any], band: Mapping[str, Sequence[float]], tint: str) -> None:
    x, middle, sd = np.array(curves["x"]), np.array(band["mean"]), np.array(band["sd"])
    ax.fill_between(x, middle - 2 * sd, middle + 2 * sd, color=tint, alpha=0.2, linewidth=0, label="± 2 sd, with noise")
    ax.plot(x, middle, color=tint, linewidth=1.8, label="network")
    ax.plot(x, curves["sine"], "--", color=GREY, linewidth=1.2, label="true function")
    ax.plot(*curves["data"], ".", color=INK, markersize=4, label="data")
    low, high = min(curves["data"][1]), max(curves["data"][1])
    ax.set_ylim(low - 0.6 * (high - low), high + 0.6 * (high - low))
    ax.set_xlim(x[0], x[-1])


def _sweep(ax: Axes, by_width: Mapping[int, Sequence[float]]) -> None:
    widths = list(by_width)
    for values in zip(*by_width.values(), strict=True):
        ax.plot(widths, values, "o-", color=BLUE, markersize=4, linewidth=1.2, alpha=0.8)
    ax.set_xscale("log")
    ax.set_xticks(widths, [str(width) for width in widths])
    ax.minorticks_off()
