"""Class probabilities over a plane: one map for each way to predict, in one colour scale."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from osculate.plots.style import BLUE, INK, ORANGE, panels, title

#: Contours of probability that are drawn and labelled.
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
_COLOURS = LinearSegmentedColormap.from_list("two classes", [BLUE, "white", ORANGE])


def probability_maps(
    maps: Mapping[str, np.ndarray],
    axes: tuple[np.ndarray, np.ndarray],
    x: np.ndarray,
    y: np.ndarray,
    names: Sequence[str] = ("input 1", "input 2"),
    heading: str = "How sure is the classifier away from its data?",
) -> Figure:
    """Probability of the second of two classes on a grid, with labelled contours and the training data.

    Args:
        maps: probabilities (G2, G1) by title; rows run along the second input.
        axes: the grid's values of the first input (G1,) and of the second (G2,).
        x: training inputs (N, 2).
        y: training targets (N,), 0 or 1.
        names: of the two inputs.
        heading: the figure's sentence.

    Raises:
        ValueError: there is no map, or its shape is not that of the grid.
    """
    if not maps:
        raise ValueError("no probability map to draw: pass at least one, by its title.")
    shape = (len(axes[1]), len(axes[0]))
    for name, probability in maps.items():
        if probability.shape != shape:
            raise ValueError(f"the map {name!r} has shape {probability.shape}, the grid {shape}.")
    figure, grid = panels(1, len(maps), 3.7, 3.6, sharex=True, sharey=True)
    for ax, (name, probability) in zip(grid[0], maps.items(), strict=True):
        image = ax.pcolormesh(*axes, probability, cmap=_COLOURS, vmin=0, vmax=1, alpha=0.75, rasterized=True)
        lines = ax.contour(*axes, probability, levels=LEVELS, colors=INK, linewidths=0.8)
        ax.clabel(lines, fmt="%.2f", fontsize=7)
        for label, marker, tint in ((0, "o", BLUE), (1, "^", ORANGE)):
            ax.plot(*x[y == label].T, marker, color=tint, markeredgecolor="white", markersize=6)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ax.set_xlabel(names[0], fontsize=9)
        ax.grid(False)
    grid[0, 0].set_ylabel(names[1], fontsize=9)
    bar = figure.colorbar(image, ax=grid, location="right", shrink=0.85)
    bar.set_label("probability of the class of the triangles", fontsize=9)
    title(figure, heading)
    return figure
