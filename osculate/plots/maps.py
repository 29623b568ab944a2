"""Maps of a plane: class probabilities with contours, and two-dimensional codes over the decoder's uncertainty."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from osculate.autoencoders.pictures import LatentMap
from osculate.plots import style

#: Levels of the labelled contours of probability.
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def class_map(
    ax: Axes, axes: tuple[np.ndarray, np.ndarray], probability: np.ndarray, x: np.ndarray, y: np.ndarray
) -> Any:
    """Draw the probability (G2, G1) of the second of two classes on given axes, with the data; return the image."""
    image = ax.pcolormesh(*axes, probability, cmap=style.TWO_CLASSES, vmin=0, vmax=1, alpha=0.5, rasterized=True)
    contours = ax.contour(*axes, probability, levels=LEVELS, colors=style.INK, linewidths=0.8)
    ax.clabel(contours, fmt="%.2f", fontsize=7)
    for kind, marker, tint in ((0, "o", style.BLUE), (1, "^", style.ORANGE)):
        ax.plot(*x[y == kind].T, marker, color=tint, markeredgecolor="white", markersize=6)
    ax.grid(False)
    return image


def probability_maps(
    maps: Mapping[str, np.ndarray],
    axes: tuple[np.ndarray, np.ndarray],
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
def latent_map(
    maps: Mapping[str, LatentMap],
    labels: np.ndarray | None = None,
    classes: Sequence[str] | None = None,
    quantity: str = "standard deviation of the decoded image",
    heading: str = "Codes of the data, and the uncertainty of the decoder around them",
    shared: bool = True,
) -> Figure:
    """Draw codes, coloured by class if known, over the standard deviation of the decoder (white is smallest).

    Args:
        maps: Codes and deviations by method.
        labels: Classes (N,) of the data, from 0.
        classes: Names of the classes; by default their numbers.
        quantity: Label of the colour bar.
        heading: Heading of the figure.
        shared: Use one scale of deviations for all methods rather than one for each.

    Raises:
        ValueError: there is no map, codes are not two-dimensional or do not fit the labels, or a map does not fit its
            grid.
    """
    if not maps:
        raise ValueError("no latent map to draw: pass at least one, by method.")
    if labels is not None and classes is None:
        classes = [str(number) for number in range(int(labels.max()) + 1)]
    for name, one in maps.items():
        shape = (len(one.axes[1]), len(one.axes[0]))
        if one.deviation.shape != shape:
            raise ValueError(f"the deviations of {name!r} have shape {one.deviation.shape}, the grid {shape}.")
        wanted = (len(one.codes) if labels is None else len(labels), 2)
        if one.codes.shape != wanted:
            raise ValueError(f"the codes of {name!r} have shape {one.codes.shape}, not {wanted}.")
    # the legend and the heading need 7 inches
    columns = len(maps) if len(maps) < 4 else -(-len(maps) // 2)
    figure, grid = style.wrapped(len(maps), columns, max(4.1, 7.0 / columns), 4.3)
    ends = {name: (float(one.deviation.min()), float(one.deviation.max())) for name, one in maps.items()}
    everywhere = min(low for low, _ in ends.values()), max(high for _, high in ends.values())
    for number, (ax, (name, one)) in enumerate(zip(grid.flat, maps.items(), strict=False)):
        low, high = everywhere if shared else ends[name]
        norm = Normalize(low, high if high > low else low + 1.0)  # white if nothing varies
        image = ax.pcolormesh(
            *one.axes, one.deviation, cmap=style.UNCERTAINTY, norm=norm, shading="gouraud", rasterized=True
        )
        edge: dict[str, Any] = {"markersize": 3.6, "markeredgecolor": "white", "markeredgewidth": 0.4}
        if labels is None or classes is None:
            ax.plot(*one.codes.T, "o", color=style.INK, **edge)
        else:
            _classes(ax, one.codes, labels, classes, edge)
        ax.set_xlim(one.axes[0][0], one.axes[0][-1])
        ax.set_ylim(one.axes[1][0], one.axes[1][-1])
        style.label(ax, name)
        ax.grid(False)
        if not shared or number == len(maps) - 1:
            style.colour_bar(figure, image, grid if shared else ax, quantity, shrink=0.95)
    style.label_outer(grid, "latent coordinate 1", "latent coordinate 2", len(maps))
    style.legend_below(figure, grid[0, 0], min(10, len(classes or ())) or 1, markerscale=2.5, handlelength=1.2)
    return style.title(figure, heading)


def _classes(ax: Axes, codes: np.ndarray, labels: np.ndarray, classes: Sequence[str], edge: Mapping[str, Any]) -> None:
    """Codes in the colour of their class, with its name at their median."""
    tints = list(matplotlib.colormaps["tab10" if len(classes) <= 10 else "tab20"].colors)  # type: ignore[attr-defined]
    tints[7] = style.INK  # in place of a grey
    for number, name in enumerate(classes):
        chosen, tint = codes[labels == number], tints[number % len(tints)]
        if not len(chosen):
            continue
        ax.plot(*chosen.T, "o", color=tint, label=name, **edge)
        words: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 11, "weight": "bold", "color": tint}
        stroke = withStroke(linewidth=3, foreground="white")
        ax.annotate(name, np.median(chosen, 0), path_effects=[stroke], **words)
