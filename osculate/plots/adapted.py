"""What the choice of the prior precision does to error bars, on a toy and on images."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from osculate.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, YELLOW, quiet, title

#: Colour and marker of each way to choose the precision.
_WAYS = {
    "θ̃, single λ": (ORANGE, "s"),
    "θ̃, multiple λ": (YELLOW, "D"),
    "θ*, single λ": (BLUE, "o"),
    "θ*, multiple λ": (GREEN, "^"),
}


def adapted(data: Mapping[str, Any]) -> Figure:
    """Bands of a toy for several precisions, its error bars against the scale of weights, and NLL by architecture.

    Args:
        data: "grid" and "truth" (G,), "points" x and y, "bands" mean and sd by title; "scales" (K,) and "deviation" by
            prior, one list (K,) a seed; "nll" by architecture and way, "map" by architecture.

    Raises:
        ValueError: there is no band.
    """
    if not data["bands"]:
        raise ValueError("no band to draw: pass at least one predictive by its title.")
    count = len(data["bands"])
    columns = -(-count // 2)
    figure = Figure(figsize=(3.6 * columns, 9.2), layout="constrained", facecolor="white")
    grid = figure.add_gridspec(3, 2 * columns, height_ratios=(1, 1, 1.25))
    first: Axes | None = None
    for number, (name, band) in enumerate(data["bands"].items()):
        row, column = divmod(number, columns)
        ax = figure.add_subplot(grid[row, 2 * column : 2 * column + 2], sharex=first, sharey=first)
        first = first or ax
        _band(ax, data, band, ORANGE if "θ̃" in name else BLUE if "θ*" in name else PURPLE)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
    assert first is not None
    y = np.asarray(data["truth"])
    first.set_ylim(y.min() - 1.2 * np.ptp(y), y.max() + 1.2 * np.ptp(y))
    first.legend(fontsize=8, frameon=False, loc="upper left", ncols=2)
    _scales(figure.add_subplot(grid[2, :columns]), data["scales"], data["deviation"])
    _architectures(figure.add_subplot(grid[2, columns:]), data["nll"], data["map"])
    title(figure, "A network is at no mode of its posterior: the evidence there asks for error bars that are too wide")
    return figure


def _band(ax: Axes, data: Mapping[str, Any], band: Mapping[str, Sequence[float]], tint: str) -> None:
    quiet(ax)
    x, mean, sd = (np.asarray(values) for values in (data["grid"], band["mean"], band["sd"]))
    for width, alpha in ((2, 0.18), (1, 0.32)):
        label = f"± {width} sd"
        ax.fill_between(x, mean - width * sd, mean + width * sd, color=tint, alpha=alpha, linewidth=0, label=label)
    ax.plot(data["points"]["x"], data["points"]["y"], ".", color=GREY, markersize=2, label="data")
    ax.plot(x, data["truth"], "--", color=INK, linewidth=1, label="truth")
    ax.plot(x, mean, color=tint, linewidth=1.5, label="mean")


def _scales(ax: Axes, scales: Sequence[float], deviation: Mapping[str, Sequence[Sequence[float]]]) -> None:
    quiet(ax)
    for (name, runs), tint in zip(deviation.items(), (BLUE, GREEN), strict=True):
        for number, values in enumerate(runs):
            ax.plot(scales, values, "o-", color=tint, markersize=4, linewidth=1.4, label=name if not number else None)
    ax.set_xscale("log", base=2)
    ax.set_xticks(scales, [f"{k:g}" for k in scales])
    ax.set_ylim(0, 1.3 * max(max(values) for runs in deviation.values() for values in runs))
    ax.set_xlabel("factor k on the weights of the normalised layers", fontsize=9)
    ax.set_ylabel("mean sd of the function on the grid", fontsize=9)
    ax.set_title(
        "The factor does not change the network\n(toy, evidence at θ*, a line a seed)", fontsize=10, loc="left"
    )
    ax.legend(fontsize=8, frameon=False, loc="upper left", ncols=3)


def _architectures(ax: Axes, nll: Mapping[str, Mapping[str, float]], alone: Mapping[str, float]) -> None:
    quiet(ax)
    places = np.arange(len(nll))
    for number, (way, (tint, marker)) in enumerate(_WAYS.items()):
        values = [each[way] for each in nll.values()]
        ax.plot(places + 0.12 * (number - 1.5), values, marker, color=tint, markersize=6, label=way)
    ax.plot(places, list(alone.values()), "_", color=INK, markersize=26, label="network alone")
    ax.set_xticks(places, list(nll))
    ax.set_xlim(-0.5, len(nll) - 0.5)
    ax.set_ylim(0, 1.4 * max(max(each.values()) for each in nll.values()))
    ax.set_ylabel("test NLL, nats an image", fontsize=9)
    ax.set_title("Image classifiers of about 45,000 weights,\nprior precision by the evidence", fontsize=10, loc="left")
    ax.legend(fontsize=8, frameon=False, loc="upper left", ncols=3)
