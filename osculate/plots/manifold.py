"""What a decoder makes of every code of a plane: one seamless picture."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from osculate.plots.arrays import arrays
from osculate.plots.images import picture
from osculate.plots.style import INK, panels, title

#: Inches of the longer side of the mosaic, and quantiles that are told on an axis at most.
SIDE, TICKS = 6.2, 7


@arrays
def manifold(
    shown: Mapping[str, np.ndarray],
    heading: str,
    names: tuple[str, str] = ("quantile of the first code", "quantile of the second code"),
    ends: tuple[float, float] | None = None,
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Images of a grid of two-dimensional codes, without frames between them (Kingma and Welling, 2014, figure 4).

    Args:
        shown: by the title of a panel, images (R, C, channels, height, width), one channel or three; ``images[i, j]``
            is of the i-th value of the second code, drawn upwards, and of the j-th value of the first, to the right.
        heading: the figure's sentence.
        names: the words of both axes.
        ends: quantiles of the first and the last value of each code, the others lie evenly between; by default the
            centres of equal cells, as :func:`osculate.autoencoders.manifold` has them.
        limits: the values of white and black of a panel, by default the smallest and the largest. (1.0, 0.0) is a
            photograph in grey.

    Raises:
        ValueError: no panel, images of another shape, or fewer than two values of a code.
    """
    if not shown:
        raise ValueError("no images to draw: pass at least one manifold, by its title.")
    mosaics = {name: _mosaic(images) for name, images in shown.items()}
    inches = [SIDE * mosaic.shape[2] / max(mosaic.shape[1:]) + 0.8 for mosaic in mosaics.values()]
    high = max(SIDE * mosaic.shape[1] / max(mosaic.shape[1:]) for mosaic in mosaics.values())
    figure, axes = panels(1, len(shown), 1.0, 1.0)
    figure.set_size_inches(max(sum(inches), 5.6), high + 1.0)
    for ax, (name, mosaic) in zip(axes[0], mosaics.items(), strict=True):
        rows, columns, _, height, width = shown[name].shape
        picture(ax, mosaic, (limits or {}).get(name) or (float(mosaic.min()), float(mosaic.max())))
        ax.set_xticks(*_ticks(columns, width, ends))
        places, words = _ticks(rows, height, ends)
        ax.set_yticks(rows * height - 1 - places, words)  # pixels count downwards
        ax.set_xlabel(names[0], fontsize=10)
        ax.set_ylabel(names[1], fontsize=10)
        ax.set_title(name, fontsize=11, color=INK)
        ax.grid(False)
    title(figure, heading)
    return figure


def _mosaic(images: np.ndarray) -> np.ndarray:
    """(channels, R height, C width), the first row of images at the bottom."""
    if images.ndim != 5 or images.shape[2] not in (1, 3) or min(images.shape[:2]) < 2:
        raise ValueError(
            f"the images have shape {images.shape}: give (rows, columns, channels, height, width), one channel or "
            "three, at least two rows and two columns."
        )
    rows, columns, channels, height, width = images.shape
    upwards = images[::-1].transpose(2, 0, 3, 1, 4)
    return upwards.reshape(channels, rows * height, columns * width)


def _ticks(count: int, pixels: int, ends: tuple[float, float] | None) -> tuple[np.ndarray, list[str]]:
    """Places, in pixels, and words of quantiles; those at the ends are the centres of the outermost images."""
    number = min(count, TICKS)
    places = pixels * (np.linspace(0, count - 1, number) + 0.5) - 0.5
    return places, [f"{quantile:.2g}" for quantile in np.linspace(*(ends or (0.5 / count, 1 - 0.5 / count)), number)]
