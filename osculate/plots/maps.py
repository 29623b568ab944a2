"""Coloured cells of a matrix, and class probabilities over a plane."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import SymLogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from osculate.plots import style

#: Levels of the labelled contours of probability.
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


@style.arrays
def class_map(
    ax: Axes, axes: tuple[style.Values, style.Values], probability: np.ndarray, x: np.ndarray, y: np.ndarray
) -> Any:
    """Draw the probability of the second of two classes on given axes, with contours and the data; return the image.

    Args:
        ax: Axes to draw on.
        axes: Values of the grid along the first input (G1,) and the second (G2,).
        probability: Probabilities (G2, G1); rows run along the second input.
        x: Training inputs (N, 2).
        y: Training targets (N,), 0 or 1.
    """
    image = ax.pcolormesh(*axes, probability, cmap=style.TWO_CLASSES, vmin=0, vmax=1, alpha=0.5, rasterized=True)
    contours = ax.contour(*axes, probability, levels=LEVELS, colors=style.INK, linewidths=0.8)
    ax.clabel(contours, fmt="%.2f", fontsize=7)
    for kind, marker, tint in ((0, "o", style.BLUE), (1, "^", style.ORANGE)):
        ax.plot(*x[y == kind].T, marker, color=tint, markeredgecolor=style.WHITE, markersize=6)
    ax.grid(False)
    return image


@style.arrays
def probability_maps(
    maps: Mapping[str, np.ndarray],
    axes: tuple[style.Values, style.Values],
    x: np.ndarray,
    y: np.ndarray,
    names: Sequence[str] = ("input 1", "input 2"),
    heading: str = "How sure is the classifier away from its data?",
) -> Figure:
    """Draw the probability of the second of two classes on a grid, with labelled contours and the training data.

    Args:
        maps: Probabilities (G2, G1) by title; rows run along the second input.
        axes: Values of the grid along the first input (G1,) and the second (G2,).
        x: Training inputs (N, 2).
        y: Training targets (N,), 0 or 1.
        names: Names of the two inputs.
        heading: Heading of the figure.

    Raises:
        ValueError: there is no map, or its shape is not that of the grid.
    """
    if not maps:
        raise ValueError("no probability map to draw: pass at least one, by its title.")
    shape = (len(axes[1]), len(axes[0]))
    for name, probability in maps.items():
        if probability.shape != shape:
            raise ValueError(f"the map {name!r} has shape {probability.shape}, the grid {shape}.")
    figure, grid = style.panels(1, len(maps), 3.7, 3.6, sharex=True, sharey=True)
    for ax, (name, probability) in zip(grid[0], maps.items(), strict=True):
        image = class_map(ax, axes, probability, x, y)
        style.label(ax, name, names[0])
    style.label(grid[0, 0], y=names[1])
    style.colour_bar(figure, image, grid, "probability of the class of the triangles", shrink=0.85)
    return style.title(figure, heading)


@style.arrays
def cells(ax: Axes, values: np.ndarray, form: str | None = None, **options: Any) -> AxesImage:
    """Draw a matrix as coloured cells on given axes, and return the image.

    Args:
        ax: Axes to draw on.
        values: Values (R, C), the first row at the top; NaN if missing.
        form: Format of the number in each cell; None draws no numbers.
        **options: Options of ``Axes.imshow``, such as the colour map.
    """
    image = ax.imshow(values, **{"cmap": style.VALUES, "interpolation": "nearest", **options})
    ax.grid(False)
    for (row, column), value in np.ndenumerate(values) if form is not None else ():
        word, ink = "–", style.GREY
        if not np.isnan(value):
            # black or white, whichever has more contrast: they are equal at a relative luminance (WCAG) of 0.21
            luminance = np.dot(np.power(image.to_rgba(value)[:3], 2.2), (0.2126, 0.7152, 0.0722))
            word, ink = f"{value:{form}}", style.INK if luminance > 0.21 else style.WHITE
        ax.text(column, row, word, ha="center", va="center", fontsize=8.5, color=ink)
    return image


#: Size of a cell and largest width of the figure, in inches.
CELL, WIDEST = (0.66, 0.4), 15.0
#: Width of a letter of the labels, in inches.
LETTER = 0.075
#: The name of a setting, and its values in words.
Places = tuple[str, Sequence[str]]


@style.arrays
def heat_map(
    values: Mapping[str, np.ndarray], rows: Places, columns: Places, heading: str, quantity: str, form: str = ".1f"
) -> Figure:
    """Draw panels of coloured cells with their numbers, each panel with its own scale.

    Args:
        values: Values (R, C) by panel, such as training and test data; NaN if missing.
        rows: Name of the setting by row, and its values, from above.
        columns: Name of the setting by column, and its values, from the left.
        heading: Heading of the figure.
        quantity: Label of the colour bars.
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
    width = max(CELL[0] * shape[1] + LETTER * max(map(len, rows[1])) + 1.6, 3.8 if len(values) > 1 else 5.6)
    across = min(len(values), max(1, int(WIDEST / width)))
    figure, axes = style.wrapped(len(values), across, width, CELL[1] * shape[0] + 1.3)
    for ax, (name, matrix) in zip(axes.flat, values.items(), strict=False):
        image = cells(ax, matrix, form, aspect="auto")
        style.bare(ax)
        # words that are longer than a cell is wide would run into each other
        slanted = max(map(len, columns[1])) * LETTER > CELL[0]
        turn: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
        ax.set_xticks(range(shape[1]), columns[1], **turn)
        ax.set_yticks(range(shape[0]), rows[1])
        style.label(ax, name, columns[0], rows[0])
        style.colour_bar(figure, image, ax, quantity, aspect=30)
    return style.title(figure, heading)


#: Entries below this share of the largest one are drawn as zero.
_FLOOR = 1e-4


@style.arrays
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
    figure, axes = style.wrapped(len(shown), 3, 3.6, 3.7)
    top = max(float(np.abs(matrix).max()) for matrix, _ in shown.values()) or 1.0
    norm = SymLogNorm(_FLOOR * top, linscale=0.3, vmin=-top, vmax=top)
    sizes = np.array(list(blocks.values()))
    ends = np.cumsum(sizes)
    for number, (ax, (name, (matrix, note))) in enumerate(zip(axes.flat, shown.items(), strict=False)):
        image = cells(ax, matrix, cmap=style.SIGNED, norm=norm)
        style.label(ax, name, note)
        for end in ends[:-1]:
            ax.axhline(end - 0.5, color=style.GREY, linewidth=0.5)
            ax.axvline(end - 0.5, color=style.GREY, linewidth=0.5)
        ax.set_xticks([])
        ax.set_yticks(ends - sizes / 2 - 0.5, list(blocks), fontsize=7)
        ax.tick_params(length=0, labelleft=number % axes.shape[1] == 0)
    name = "entry of the matrix (logarithmic); white: zero, or left out"
    bar = style.colour_bar(figure, image, axes, name, shrink=0.7, aspect=40)
    powers = [top * share for share in (1.0, 1e-2, _FLOOR)]
    marks = [-value for value in powers] + [0.0] + powers[::-1]
    bar.set_ticks(marks, labels=[f"{value:.0e}" if value else "0" for value in marks])
    bar.ax.minorticks_off()
    return style.title(figure, heading)
