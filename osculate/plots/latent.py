"""A map of codes: where data lie, how uncertain their codes are, and what the decoder makes of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection
from matplotlib.colors import LogNorm, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from osculate.autoencoders.pictures import EXAMPLES, LatentMap
from osculate.plots import style
from osculate.plots.images import grey_scale, picture

#: Room around a latent map for decoded examples, and their size, in widths of the panel.
ROOM, EXAMPLE = 0.14, 0.115
#: Ratio of the largest deviation to the smallest beyond which their scale is logarithmic.
WIDE = 20


@style.arrays
def latent_map(
    maps: Mapping[str, LatentMap],
    labels: np.ndarray | None = None,
    classes: Sequence[str] | None = None,
    quantity: str = "standard deviation of the decoded image, mean over pixels",
    heading: str = "Codes of the data, and the uncertainty of the decoder around them",
) -> Figure:
    """Draw codes, coloured by class if known, over the standard deviation of the decoder: one scale, white is smallest.

    An ellipse is one standard deviation of a code. Around the map stand images that the decoder makes of a few of them.

    Args:
        maps: Codes and deviations by method.
        labels: Classes (N,) of the data, from 0.
        classes: Names of the classes; by default their numbers.
        quantity: Label of the colour bar.
        heading: Heading of the figure.

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
    columns = min(len(maps), 2 if len(maps) < 5 else 3)
    figure, grid = style.wrapped(len(maps), columns, 5.4 if columns == 1 else 4.6, 5.2 if columns == 1 else 4.5)
    pictured = [one.examples[1:] for one in maps.values() if one.examples is not None and _has_pictures(one)]
    limits = grey_scale(pictured[0][0], *(images for _, images in pictured)) if pictured else (0.0, 1.0)
    norm, low = _one_scale([one.deviation for one in maps.values()])
    for ax, (name, one) in zip(grid.flat, maps.items(), strict=False):
        image = ax.pcolormesh(
            *one.axes,
            np.maximum(one.deviation, low),
            cmap=style.UNCERTAINTY,
            norm=norm,
            shading="gouraud",
            rasterized=True,
        )
        tints = np.full((len(one.codes), 3), to_rgb(style.INK))
        if labels is not None and classes is not None:
            tints = np.array([to_rgb(tint) for tint in style.class_tints(len(classes))])[labels.astype(int)]
        _codes(ax, one, tints)
        for number, kind in enumerate(classes or ()):
            if labels is not None and (labels == number).any():
                _name(ax, kind, one.codes[labels == number], style.class_tints(len(classes or ()))[number])
        room = ROOM if _has_pictures(one) else 0.0
        for which, axis in zip((ax.set_xlim, ax.set_ylim), one.axes, strict=True):
            beyond = (axis[-1] - axis[0]) * room / (1 - 2 * room)
            which(axis[0] - beyond, axis[-1] + beyond)
        if room:
            _examples(ax, one, tints, limits)
        style.label(ax, name)
        ax.grid(False)
    style.colour_bar(figure, image, grid, quantity, shrink=0.9, aspect=35)
    style.label_outer(grid, "first number of the code", "second number of the code", len(maps))
    style.legend_below(figure, grid[0, 0], min(10, len(classes or ())) or 1, handlelength=1.2)
    return style.title(figure, heading)


def _one_scale(deviations: Sequence[np.ndarray]) -> tuple[Normalize, float]:
    """A scale of all deviations, logarithmic if they span much and white if nothing varies, and its lower end."""
    every = np.concatenate([each.ravel() for each in deviations])
    positive = every[every > 0]
    if not len(positive):
        return Normalize(0.0, 1.0), 0.0
    top, low = float(positive.max()), float(np.quantile(positive, 0.01))
    return (LogNorm(low, top), low) if top > WIDE * low else (Normalize(0.0, top), 0.0)


def _codes(ax: Axes, one: LatentMap, tints: np.ndarray) -> None:
    """Draw a dot for each code, and an ellipse of one standard deviation."""
    if one.spread is not None and one.spread.any():
        widths, heights = 2 * one.spread.T
        tinted = {"facecolors": np.c_[tints, 0.12 + 0 * widths], "edgecolors": np.c_[tints, 0.6 + 0 * widths]}
        options: dict[str, Any] = {"offsets": one.codes, "offset_transform": ax.transData, "linewidths": 0.6, **tinted}
        ax.add_collection(EllipseCollection(widths, heights, 0 * widths, units="xy", zorder=2.8, **options))
    ax.scatter(one.codes[:, 0], one.codes[:, 1], s=13, c=tints, edgecolors=style.WHITE, linewidths=0.4, zorder=3)


def _name(ax: Axes, kind: str, codes: np.ndarray, tint: Any) -> None:
    """Write the name of a class at the median of its codes, and into the legend."""
    words: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 11, "weight": "bold", "color": tint}
    stroke = withStroke(linewidth=3, foreground=style.WHITE)
    ax.annotate(kind, np.median(codes, 0), path_effects=[stroke], zorder=5, **words)
    ax.plot([], [], "o", color=tint, label=kind, markersize=8)


def _has_pictures(one: LatentMap) -> bool:
    return one.examples is not None and one.examples[2].ndim == 4 and one.examples[2].shape[1] in (1, 3)


def _examples(ax: Axes, one: LatentMap, tints: np.ndarray, limits: tuple[float, float]) -> None:
    """Draw decoded images in a ring around the map, each joined to its code."""
    assert one.examples is not None
    indices, _, images = one.examples
    middle, ends = np.median(one.codes, 0), np.array([[axis[0], axis[-1]] for axis in one.axes])
    directions = (one.codes[indices] - middle) / (np.ptp(one.codes, axis=0) + 1e-12)
    turns = np.rint(np.arctan2(*directions.T[::-1]) * EXAMPLES / (2 * np.pi)) * 2 * np.pi / EXAMPLES
    ring = np.stack([np.cos(turns), np.sin(turns)], 1)
    ring /= np.abs(ring).max(1, keepdims=True)  # on a square
    for index, image, place in zip(indices, images, 0.5 + (0.5 - ROOM / 2) * ring, strict=True):
        inset = ax.inset_axes((*(place - EXAMPLE / 2), EXAMPLE, EXAMPLE))
        picture(inset, image, limits)
        style.bare(inset)
        inset.spines[:].set(visible=True, color=tints[index], linewidth=1.2)
        end = ends[:, 0] + (place - ROOM) / (1 - 2 * ROOM) * np.ptp(ends, axis=1)
        ax.plot(*np.stack([one.codes[index], end]).T, color=style.INK, linewidth=0.7, zorder=2.5)
        ax.plot(*one.codes[index], "o", color=style.INK, markerfacecolor="none", markersize=6, zorder=4)
