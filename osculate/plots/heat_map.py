"""A value for each pair of two settings: a table that is seen at a glance, with its numbers in the cells."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from osculate.plots.arrays import arrays
from osculate.plots.style import GREY, INK, panels, title

#: Inches of a cell, and of all panels side by side at most.
CELL, WIDEST = (0.66, 0.4), 15.0
#: The words of an axis, and of each of its places.
Places = tuple[str, Sequence[str]]


@arrays
def heat_map(
    values: Mapping[str, np.ndarray], rows: Places, columns: Places, heading: str, what: str, form: str = ".1f"
) -> Figure:
    """Panels of coloured cells, each panel in a scale of its own.

    Args:
        values: (R, C) by panel, such as training and test data; NaN where there is none.
        rows: what they differ in, and the words of each, from above.
        columns: the same of columns, from the left.
        heading: the figure's sentence.
        what: the words of the colour bars.
        form: how a number is written in its cell.

    Raises:
        ValueError: there is no panel, a panel of another shape, or one without a value.
    """
    if not values:
        raise ValueError("no values to draw: pass at least one panel of them, by its title.")
    shape = (len(rows[1]), len(columns[1]))
    for name, matrix in values.items():
        if matrix.shape != shape or not np.isfinite(matrix).any():
            raise ValueError(
                f"the panel {name!r} has shape {matrix.shape} and {np.isfinite(matrix).sum()} values, its rows and"
                f" columns have {shape} names: give a value for each pair, at least one of them not NaN."
            )
    # beside the cells: the words of the rows, and the colour bar
    width = max(CELL[0] * shape[1] + 0.075 * max(map(len, rows[1])) + 1.6, 3.8 if len(values) > 1 else 5.6)
    across = min(len(values), max(1, int(WIDEST / width)))
    figure, axes = panels(-(-len(values) // across), across, width, CELL[1] * shape[0] + 1.3)
    for ax, (name, matrix) in zip(axes.flat, values.items(), strict=False):
        image = ax.imshow(matrix, cmap="viridis", aspect="auto", interpolation="nearest")
        _numbers(ax, matrix, image, form)
        ax.set_xticks(range(shape[1]), columns[1])
        ax.set_yticks(range(shape[0]), rows[1])
        ax.set_xlabel(columns[0], fontsize=9)
        ax.set_ylabel(rows[0], fontsize=9)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ax.grid(False)
        ax.spines[:].set_visible(False)
        bar = figure.colorbar(image, ax=ax, location="right", aspect=30)
        bar.set_label(what, fontsize=9)
        bar.ax.tick_params(labelsize=8)
    for ax in axes.flat[len(values) :]:
        ax.set_visible(False)
    title(figure, heading)
    return figure


def _numbers(ax: Axes, matrix: np.ndarray, image: AxesImage, form: str) -> None:
    """Each number in its cell, in the one of two inks that has more contrast there."""
    for (row, column), value in np.ndenumerate(matrix):
        word, ink = "–", GREY
        if not np.isnan(value):
            # relative luminance (WCAG): 0.21 stands out as much from the ink as from white
            luminance = np.dot(np.power(image.to_rgba(value)[:3], 2.2), (0.2126, 0.7152, 0.0722))
            word, ink = f"{value:{form}}", INK if luminance > 0.21 else "white"
        ax.text(column, row, word, ha="center", va="center", fontsize=8.5, color=ink)
