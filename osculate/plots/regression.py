"""Error bars on a curve: mean and bands of a one-dimensional regression, one panel for each posterior."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from osculate.plots.arrays import Values
from osculate.plots.style import GREY, INK, PALE, colour, panels, title


@dataclass(frozen=True)
class Band:
    """A predictive distribution along a line.

    Args:
        x: inputs (G,), ascending.
        mean: predictive mean (G,), in units of the target.
        sd: predictive standard deviation (G,), observation noise included.
        note: a few words under the title of the panel.
    """

    x: Values
    mean: Values
    sd: Values
    note: str = ""


def regression_bands(
    bands: Mapping[str, Band], x: np.ndarray, y: np.ndarray, gaps: Sequence[tuple[float, float]] = ()
) -> Figure:
    """Data, mean, and bands of one and two standard deviations, on shared axes.

    Args:
        bands: the predictive of each posterior, by name.
        x: training inputs (N,).
        y: training targets (N,).
        gaps: intervals without data, marked in each panel.

    Raises:
        ValueError: there is no band.
    """
    if not bands:
        raise ValueError("no predictive band to draw: pass at least one, by name of its posterior.")
    figure, axes = panels(-(-len(bands) // 2), min(2, len(bands)), 4.6, 2.9, sharex=True, sharey=True)
    for index, (label, band) in enumerate(bands.items()):
        ax = axes.flat[index]
        draw_band(ax, band, np.asarray(x), np.asarray(y), gaps, colour(label, index))
        ax.set_title(f"{label}: {band.note}" if band.note else label, fontsize=10, color=INK, loc="left")
    for ax in axes.flat[len(bands) :]:
        ax.set_visible(False)
    low, high = np.min(y), np.max(y)
    axes[0, 0].set_ylim(low - 1.1 * (high - low), high + 1.1 * (high - low))
    for ax in axes[-1]:
        ax.set_xlabel("input x", fontsize=9)
    for ax in axes[:, 0]:
        ax.set_ylabel("output y", fontsize=9)
    axes.flat[0].legend(fontsize=8, frameon=False, loc="upper left", ncols=2)
    title(figure, "Do the error bars grow where there are no data?")
    return figure


def draw_band(
    ax: Axes, band: Band, x: np.ndarray, y: np.ndarray, gaps: Sequence[tuple[float, float]], tint: str
) -> None:
    """One panel: bands, mean and data in one colour, with the gaps marked."""
    for low, high in gaps:
        ax.axvspan(low, high, color=PALE, alpha=0.6, linewidth=0)
        ax.annotate(
            "no data", ((low + high) / 2, 0.03), xycoords=("data", "axes fraction"), ha="center", fontsize=8, color=GREY
        )
    mean, sd = np.asarray(band.mean), np.asarray(band.sd)
    for width, alpha, text in ((2, 0.18, "± 2 sd"), (1, 0.32, "± 1 sd")):
        low, high = mean - width * sd, mean + width * sd
        ax.fill_between(band.x, low, high, color=tint, alpha=alpha, linewidth=0, label=text)
    ax.plot(band.x, band.mean, color=tint, linewidth=1.8, label="mean")
    ax.plot(x, y, ".", color=INK, markersize=3, label="data")
    ax.set_xlim(band.x[0], band.x[-1])
