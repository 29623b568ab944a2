"""A posterior over two weights beside its Gaussian approximation, and what each predicts over the plane."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from osculate.plots.maps import LEVELS
from osculate.plots.style import BLUE, INK, ORANGE, panels, title

#: Contours at these shares of the largest density.
SHARES = (0.01, 0.1, 0.5, 0.9)


def logistic_planes(
    posterior: tuple[tuple[np.ndarray, np.ndarray], Mapping[str, np.ndarray], np.ndarray],
    maps: Mapping[str, np.ndarray],
    axes: tuple[np.ndarray, np.ndarray],
    x: np.ndarray,
    y: np.ndarray,
) -> Figure:
    """Densities over the weights in the first panel, then one map of probabilities for each way to predict.

    Args:
        posterior: the values of both weights (G1,) and (G2,), densities (G2, G1) by name, the first of them filled,
            and the mode (2,).
        maps: probabilities (M2, M1) of the second class, by title.
        axes: the values of both inputs, (M1,) and (M2,).
        x: training inputs (N, 2).
        y: training targets (N,), 0 or 1.

    Raises:
        ValueError: there is no map.
    """
    if not maps:
        raise ValueError("no probability map to draw: pass at least one, by its title.")
    figure, grid = panels(1, 1 + len(maps), 3.6, 3.7)
    _densities(grid[0, 0], *posterior)
    for ax, (name, probability) in zip(grid[0, 1:], maps.items(), strict=True):
        image = ax.pcolormesh(*axes, probability, cmap="RdBu_r", vmin=0, vmax=1, alpha=0.6, rasterized=True)
        lines = ax.contour(*axes, probability, levels=LEVELS, colors=INK, linewidths=0.8)
        ax.clabel(lines, fmt="%.2f", fontsize=7)
        for label, marker, tint in ((0, "o", BLUE), (1, "^", ORANGE)):
            ax.plot(*x[y == label].T, marker, color=tint, markeredgecolor="white", markersize=5)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ax.set_xlabel("input 1", fontsize=9)
        ax.grid(False)
    grid[0, 1].set_ylabel("input 2", fontsize=9)
    bar = figure.colorbar(image, ax=grid[0, 1:], location="right", shrink=0.85)
    bar.set_label("probability of the class of the triangles", fontsize=9)
    title(figure, "Logistic regression: the posterior beside its Gaussian, and what each way predicts")
    return figure


def _densities(
    ax: Axes, axes: tuple[np.ndarray, np.ndarray], densities: Mapping[str, np.ndarray], mode: np.ndarray
) -> None:
    for number, (name, density) in enumerate(densities.items()):
        levels = density.max() * np.array(SHARES)
        if number == 0:
            ax.contourf(*axes, density, levels=[*levels, density.max()], cmap="Greys", alpha=0.7)
            ax.fill_between([], [], color="0.5", label=name)
        else:
            ax.contour(*axes, density, levels=levels, colors=BLUE, linewidths=1.2)
            ax.plot([], [], color=BLUE, label=name)
    ax.plot(*mode, "x", color=ORANGE, markersize=7, markeredgewidth=2, label="mode")
    ax.set_title("posterior over the weights", fontsize=10, color=INK, loc="left")
    ax.set_xlabel("weight 1", fontsize=9)
    ax.set_ylabel("weight 2", fontsize=9)
    ax.legend(fontsize=8, frameon=False, loc="lower left")
