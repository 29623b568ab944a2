"""Error bars of many posteriors on one curve: a row for each way to predict, a column for each posterior."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from osculate.plots.regression import Band, draw_band
from osculate.plots.style import INK, colour, panels, title


def band_grid(
    rows: Mapping[str, Mapping[str, Band]],
    x: np.ndarray,
    y: np.ndarray,
    gaps: Sequence[tuple[float, float]] = (),
    heading: str = "Do the error bars grow where there are no data?",
) -> Figure:
    """Data, mean, and bands of one and two standard deviations, on shared axes.

    Args:
        rows: bands by posterior, by the name of the row.
        x: training inputs (N,).
        y: training targets (N,).
        gaps: intervals without data, marked in each panel.
        heading: the figure's sentence.

    Raises:
        ValueError: there is no band.
    """
    if not rows or not all(rows.values()):
        raise ValueError("no predictive band to draw: pass at least one row of them.")
    figure, axes = panels(len(rows), max(map(len, rows.values())), 3.9, 2.3, sharex=True, sharey=True)
    for number, (line, (name, bands)) in enumerate(zip(axes, rows.items(), strict=True)):
        line[0].set_ylabel(name, fontsize=9)
        for index, (ax, (label, band)) in enumerate(zip(line, bands.items(), strict=False)):
            draw_band(ax, band, x, y, gaps, colour(label, index))
            if number == 0:
                ax.set_title(label, fontsize=10, color=INK, loc="left")
    low, high = float(np.min(y)), float(np.max(y))
    axes[0, 0].set_ylim(low - 0.8 * (high - low), high + 0.8 * (high - low))
    for ax in axes[-1]:
        ax.set_xlabel("input x", fontsize=9)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    title(figure, heading)
    return figure
