"""Matrices as pictures in one colour scale: which entries does an approximation keep, and how large are they?"""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import SymLogNorm
from matplotlib.figure import Figure

from osculate.plots.style import GREY, INK, panels, title

#: Entries below this share of the largest one look like zero.
_FLOOR = 1e-4


def matrices(shown: Mapping[str, tuple[np.ndarray, str]], blocks: Mapping[str, int], heading: str) -> Figure:
    """Square matrices side by side, coloured by the logarithm of their entries, sign by sign.

    Args:
        shown: by title, a matrix (P, P) and a line to stand below it.
        blocks: names and sizes of the groups of rows, in order; lines separate them.
        heading: the figure's sentence.

    Raises:
        ValueError: there is no matrix, or the sizes of the blocks do not add up to its.
    """
    if not shown:
        raise ValueError("no matrix to draw: pass at least one, by its title.")
    for name, (matrix, _) in shown.items():
        if matrix.shape != (sum(blocks.values()),) * 2:
            raise ValueError(f"{name} has shape {matrix.shape}, but the blocks have {sum(blocks.values())} rows.")
    columns = min(3, len(shown))
    figure, axes = panels(-(-len(shown) // columns), columns, 3.6, 3.7)
    top = max(float(np.abs(matrix).max()) for matrix, _ in shown.values()) or 1.0
    norm = SymLogNorm(_FLOOR * top, linscale=0.3, vmin=-top, vmax=top)
    for ax, (name, (matrix, note)) in zip(axes.flat, shown.items(), strict=False):
        image = ax.imshow(matrix, cmap="RdBu_r", norm=norm, interpolation="nearest")
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ax.set_xlabel(note, fontsize=8.5)
        _blocks(ax, blocks)
    for ax in axes.flat[len(shown) :]:
        ax.set_visible(False)
    for ax in axes[:, 0]:
        ax.tick_params(labelleft=True)
    bar = figure.colorbar(image, ax=axes, location="right", shrink=0.7, aspect=40)
    powers = [top * share for share in (1.0, 1e-2, _FLOOR)]
    ticks = [-value for value in powers] + [0.0] + powers[::-1]
    bar.set_ticks(ticks, labels=[f"{value:.0e}" if value else "0" for value in ticks])
    bar.ax.minorticks_off()
    bar.set_label("entry of the matrix (logarithmic); white: zero, or left out", fontsize=9)
    title(figure, heading)
    return figure


def _blocks(ax: Axes, blocks: Mapping[str, int]) -> None:
    ends = np.cumsum(list(blocks.values()))
    for end in ends[:-1]:
        ax.axhline(end - 0.5, color=GREY, linewidth=0.5)
        ax.axvline(end - 0.5, color=GREY, linewidth=0.5)
    ax.grid(False)
    ax.set_xticks([])
    ax.set_yticks(ends - np.array(list(blocks.values())) / 2 - 0.5, list(blocks), fontsize=7)
    ax.tick_params(length=0, labelleft=False)
