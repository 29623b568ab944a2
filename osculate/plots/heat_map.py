"""Heat maps: a value for each pair of two settings with its number in the cell, and matrices in one colour scale."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.colors import SymLogNorm
from matplotlib.figure import Figure

from osculate.plots.style import GREY, INK, SIGNED, VALUES, arrays, bare, colour_bar, label, title, wrapped

#: Size of a cell and largest width of the figure, in inches.
CELL, WIDEST = (0.66, 0.4), 15.0
#: The name of a setting, and its values in words.
Places = tuple[str, Sequence[str]]


@arrays
def heat_map(
    values: Mapping[str, np.ndarray], rows: Places, columns: Places, heading: str, what: str, form: str = ".1f"
) -> Figure:
    """Draw panels of coloured cells with their numbers, each panel with its own scale.

    Args:
        values: Values (R, C) by panel, such as training and test data; NaN if missing.
        rows: Name of the setting by row, and its values, from above.
        columns: Name of the setting by column, and its values, from the left.
        heading: Heading of the figure.
        what: Label of the colour bars.
        form: Format of the numbers.

    Raises:
        ValueError: there is no panel, or a panel has another shape or no value.
    """
    if not values:
        raise ValueError("no values to draw: pass at least one panel of them, by its title.")
    shape = (len(rows[1]), len(columns[1]))
    for name, matrix in values.items():
        if matrix.shape != shape or not np.isfinite(matrix).any():
            raise ValueError(
                f"the panel {name!r} has shape {matrix.shape} and {np.isfinite(matrix).sum()} values, but its rows and"
                f" columns have {shape} names: give a value for each pair, at least one of them not NaN."
            )
    # margins for the labels of the rows and the colour bar
    width = max(CELL[0] * shape[1] + 0.075 * max(map(len, rows[1])) + 1.6, 3.8 if len(values) > 1 else 5.6)
    across = min(len(values), max(1, int(WIDEST / width)))
    figure, axes = wrapped(len(values), across, width, CELL[1] * shape[0] + 1.3)
    for ax, (name, matrix) in zip(axes.flat, values.items(), strict=False):
        image = ax.imshow(matrix, cmap=VALUES, aspect="auto", interpolation="nearest")
        bare(ax)
        for (row, column), value in np.ndenumerate(matrix):
            word, ink = "–", GREY
            if not np.isnan(value):
                # black or white, whichever has more contrast: they are equal at a relative luminance (WCAG) of 0.21
                luminance = np.dot(np.power(image.to_rgba(value)[:3], 2.2), (0.2126, 0.7152, 0.0722))
                word, ink = f"{value:{form}}", INK if luminance > 0.21 else "white"
            ax.text(column, row, word, ha="center", va="center", fontsize=8.5, color=ink)
        ax.set_xticks(range(shape[1]), columns[1])
        ax.set_yticks(range(shape[0]), rows[1])
        label(ax, name, columns[0], rows[0])
        colour_bar(figure, image, ax, what, aspect=30)
    return title(figure, heading)


#: Entries below this share of the largest one are drawn as zero.
_FLOOR = 1e-4


def matrices(shown: Mapping[str, tuple[np.ndarray, str]], blocks: Mapping[str, int], heading: str) -> Figure:
    """Draw square matrices side by side, with colours for the sign and the logarithm of their entries.

    Args:
        shown: A matrix (P, P) and a note below it, by title.
        blocks: Names and sizes of the groups of rows, in order; lines separate them.
        heading: Heading of the figure.

    Raises:
        ValueError: there is no matrix, or the sizes of the blocks do not add up to P.
    """
    if not shown:
        raise ValueError("no matrix to draw: pass at least one, by its title.")
    for name, (matrix, _) in shown.items():
        if matrix.shape != (sum(blocks.values()),) * 2:
            raise ValueError(f"{name} has shape {matrix.shape}, but the blocks have {sum(blocks.values())} rows.")
    figure, axes = wrapped(len(shown), 3, 3.6, 3.7)
    top = max(float(np.abs(matrix).max()) for matrix, _ in shown.values()) or 1.0
    norm = SymLogNorm(_FLOOR * top, linscale=0.3, vmin=-top, vmax=top)
    sizes = np.array(list(blocks.values()))
    ends = np.cumsum(sizes)
    for number, (ax, (name, (matrix, note))) in enumerate(zip(axes.flat, shown.items(), strict=False)):
        image = ax.imshow(matrix, cmap=SIGNED, norm=norm, interpolation="nearest")
        label(ax, name, note)
        ax.grid(False)
        for end in ends[:-1]:
            ax.axhline(end - 0.5, color=GREY, linewidth=0.5)
            ax.axvline(end - 0.5, color=GREY, linewidth=0.5)
        ax.set_xticks([])
        ax.set_yticks(ends - sizes / 2 - 0.5, list(blocks), fontsize=7)
        ax.tick_params(length=0, labelleft=number % axes.shape[1] == 0)
    name = "entry of the matrix (logarithmic); white: zero, or left out"
    bar = colour_bar(figure, image, axes, name, shrink=0.7, aspect=40)
    powers = [top * share for share in (1.0, 1e-2, _FLOOR)]
    marks = [-value for value in powers] + [0.0] + powers[::-1]
    bar.set_ticks(marks, labels=[f"{value:.0e}" if value else "0" for value in marks])
    bar.ax.minorticks_off()
    return title(figure, heading)
