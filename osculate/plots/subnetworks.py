"""Subnetworks: error bars of a toy, what each choice of weights keeps of them, and scores under shift."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from osculate.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, YELLOW, panels, title

#: What a reader calls each choice, and its colour and marker.
_CHOICES = {
    "swag": ("SWAG variance", BLUE, "o"),
    "function_space": ("function space", GREEN, "s"),
    "magnitude": ("magnitude", YELLOW, "^"),
    "random": ("random", GREY, "v"),
    "diag_variance": ("diagonal Laplace", PURPLE, "D"),
}
_METHODS = {
    "MAP": (ORANGE, "-"),
    "diagonal": (PURPLE, "-"),
    "MC dropout": (YELLOW, "-"),
    "deep ensemble": (INK, "-"),
    "SWAG": (GREY, "-"),
}


def subnetworks(
    bands: Mapping[str, Mapping[str, Sequence[float]]],
    points: Mapping[str, Sequence[float]],
    kept: tuple[Sequence[float], Mapping[str, Sequence[float | None]]],
    shifts: Mapping[str, Mapping[str, Any]],
) -> Figure:
    """Error bars in the upper row; what is kept of them, and NLL and accuracy against the shift, in the lower one.

    Args:
        bands: by title, the inputs "x", the "mean" and the standard deviation "sd" of the function, without noise.
        points: the data, "x" and "y".
        kept: fractions of the weights, and by choice the share of the standard deviation between the clusters.
        shifts: by data set, the "levels", and by method the "nll" and the "accuracy" at each.

    Raises:
        ValueError: there is no band.
    """
    if not bands:
        raise ValueError("no band to draw: pass at least one, by its title.")
    columns = max(len(bands), 1 + 2 * len(shifts))
    figure, axes = panels(2, columns, 3.4, 3.1)
    for ax, (name, band) in zip(axes[0], bands.items(), strict=False):
        _band(ax, band, points)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
    _kept(axes[1, 0], *kept)
    place = 1
    for name, found in shifts.items():
        for quantity, label in (("nll", "NLL, nats"), ("accuracy", "accuracy, %")):
            ax = axes[1, place]
            _shift(ax, found["levels"], found[quantity])
            ax.set_title(f"{name}: {label}", fontsize=10, color=INK, loc="left")
            ax.set_xlabel("rotation, degrees" if max(found["levels"]) > 5 else "severity", fontsize=9)
            place += 1
    for ax in [*axes[0, len(bands) :], *axes[1, place:]]:
        ax.set_visible(False)
    methods = list(dict.fromkeys(row for found in shifts.values() for row in found["nll"]))
    handles = [Line2D([], [], label=row, markersize=4, marker=".", **_style(row)) for row in methods]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(handles) or 1, fontsize=9, frameon=False)
    title(figure, "How much of the uncertainty does a full covariance over a few of the weights keep?")
    return figure


def _band(ax: Axes, band: Mapping[str, Sequence[float]], points: Mapping[str, Sequence[float]]) -> None:
    x, mean, sd = (np.asarray(band[name]) for name in ("x", "mean", "sd"))
    for width, alpha in ((2, 0.18), (1, 0.32)):
        ax.fill_between(x, mean - width * sd, mean + width * sd, color=BLUE, alpha=alpha, linewidth=0)
    ax.plot(points["x"], points["y"], ".", color=INK, markersize=2)
    ax.plot(x, mean, color=ORANGE, linewidth=1.6)
    low, high = min(points["y"]), max(points["y"])
    ax.set(xlim=(x[0], x[-1]), ylim=(low - 0.4 * (high - low), high + 0.4 * (high - low)))
    ax.set_xlabel("input x", fontsize=9)


def _kept(ax: Axes, fractions: Sequence[float], kept: Mapping[str, Sequence[float | None]]) -> None:
    for select, shares in kept.items():
        label, tint, marker = _CHOICES.get(select, (select, INK, "o"))
        values = [np.nan if value is None else value for value in shares]
        ax.plot(
            [100 * f for f in fractions], values, marker=marker, color=tint, markersize=5, linewidth=1.6, label=label
        )
    ax.axhline(1, color=GREY, linewidth=1, linestyle=":")
    ax.set(xscale="log", ylim=(-0.05, 1.1))
    ax.set_xticks([100 * f for f in fractions], [f"{100 * f:g}" for f in fractions])
    ax.minorticks_off()
    ax.set_xlabel("share of the weights, %", fontsize=9)
    ax.set_title("sd between clusters, of the full one's", fontsize=10, color=INK, loc="left")
    ax.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(0.0, 0.93))


def _shift(ax: Axes, levels: Sequence[int], rows: Mapping[str, Sequence[float]]) -> None:
    for row, values in rows.items():
        ax.plot(levels, values, marker=".", markersize=6, linewidth=1.6, **_style(row))
    ax.set_xticks(levels)


def _style(row: str) -> dict[str, Any]:
    """Subnetworks are blue, the smaller the more broken the line."""
    if row in _METHODS:
        tint, line = _METHODS[row]
        return {"color": tint, "linestyle": line}
    return {"color": BLUE, "linestyle": "-" if row.startswith("subnetwork, 5 %") else "--"}
