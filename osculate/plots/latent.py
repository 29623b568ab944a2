"""Two-dimensional codes of data over how unsure the decoder is, one panel for each method."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from osculate.autoencoders.plane import LatentMap
from osculate.plots.arrays import arrays
from osculate.plots.style import INK, panels, title

# points of any colour stand out on it
_HEAT = LinearSegmentedColormap.from_list("sure to unsure", ["white", "#8F8F8F"])


@arrays
def latent_map(
    maps: Mapping[str, LatentMap],
    labels: np.ndarray | None = None,
    classes: Sequence[str] | None = None,
    quantity: str = "standard deviation of the decoded image",
    heading: str = "Where the codes lie, and how unsure the decoder is there",
    shared: bool = True,
) -> Figure:
    """Codes as points, by class where it is known, over the deviation of the decoder from white (sure) to grey.

    Args:
        maps: by method.
        labels: classes (N,) of the data, from 0.
        classes: their names; by default their numbers.
        quantity: the words of the colour bar.
        heading: the figure's sentence.
        shared: one scale of deviations for all methods; else one for each, where they differ by much.

    Raises:
        ValueError: there is no map, codes that are not two-dimensional or not as many as labels, or a map that is not
            on its grid.
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
    columns = len(maps) if len(maps) < 4 else -(-len(maps) // 2)
    rows = -(-len(maps) // columns)
    figure, grid = panels(rows, columns, max(4.1, 7.0 / columns), 4.3)  # the legend and the heading need 7 inches
    tops = {name: float(one.deviation.max()) for name, one in maps.items()}
    for number, (ax, (name, one)) in enumerate(zip(grid.flat, maps.items(), strict=False)):
        top = (max(tops.values()) if shared else tops[name]) or 1.0  # nothing is random: all white
        image = ax.pcolormesh(
            *one.axes, one.deviation, cmap=_HEAT, vmin=0, vmax=top, shading="gouraud", rasterized=True
        )
        if labels is None or classes is None:
            ax.plot(*one.codes.T, "o", color=INK, markersize=3.2, markeredgecolor="white", markeredgewidth=0.3)
        else:
            _points(ax, one.codes, labels, classes)
        ax.set_xlim(one.axes[0][0], one.axes[0][-1])
        ax.set_ylim(one.axes[1][0], one.axes[1][-1])
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ax.grid(False)
        if not shared or number == len(maps) - 1:
            bar = figure.colorbar(image, ax=grid if shared else ax, location="right", shrink=0.95)
            bar.set_label(quantity, fontsize=8)
            bar.ax.tick_params(labelsize=8)
    _frame(figure, grid, len(maps))
    title(figure, heading)
    return figure


def _frame(figure: Figure, grid: np.ndarray, number: int) -> None:
    """Words at the outer axes, and one legend of all classes."""
    for ax in grid.flat[number:]:
        ax.set_visible(False)
    for ax in grid[-1]:
        ax.set_xlabel("latent coordinate 1", fontsize=9)
    for ax in grid[:, 0]:
        ax.set_ylabel("latent coordinate 2", fontsize=9)
    handles, names = grid[0, 0].get_legend_handles_labels()
    if not handles:
        return
    figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=min(10, len(names)),
        fontsize=8,
        frameon=False,
        markerscale=2.5,
    )


def _points(ax: Axes, codes: np.ndarray, labels: np.ndarray, classes: Sequence[str]) -> None:
    tints = list(matplotlib.colormaps["tab10" if len(classes) <= 10 else "tab20"].colors)  # type: ignore[attr-defined]
    tints[7] = INK  # in place of a grey
    for number, name in enumerate(classes):
        chosen, tint = codes[labels == number], tints[number % len(tints)]
        if not len(chosen):
            continue
        ax.plot(*chosen.T, "o", color=tint, markersize=3.2, markeredgecolor="white", markeredgewidth=0.3, label=name)
        ax.annotate(
            name,
            np.median(chosen, 0),
            ha="center",
            va="center",
            fontsize=10,
            weight="bold",
            color=tint,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
