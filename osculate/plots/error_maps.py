"""Reconstructed images beside what is wrong with them, and what their error bars say is wrong."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from osculate.plots.arrays import arrays
from osculate.plots.style import INK, panels, title


@arrays
def error_maps(
    truth: np.ndarray | None,
    found: Mapping[str, tuple[np.ndarray, np.ndarray]],
    heading: str,
    words: str = "pixel",
    white: float | None = None,
) -> Figure:
    """A row for each method: its image, the absolute error where the truth is known, and its standard deviation.

    Images have one scale, errors and deviations another, of their row alone: they are to be compared with each other.

    Args:
        truth: (H, W); None where it is not known.
        found: by method, image and standard deviation, both (H, W).
        heading: the figure's sentence.
        words: what is in a place of the image, for the colour bars.
        white: the largest value that an image may have, of a scale from 0; by default from what there is.

    Raises:
        ValueError: there is no method, or shapes differ.
    """
    if not found:
        raise ValueError("no reconstruction to draw: pass at least one image with its standard deviation, by name.")
    pairs = {name: (np.asarray(mean), np.asarray(deviation)) for name, (mean, deviation) in found.items()}
    known = None if truth is None else np.asarray(truth)
    shape = next(iter(pairs.values()))[0].shape if known is None else known.shape
    for name, parts in pairs.items():
        if any(part.shape != shape or part.ndim != 2 for part in parts):
            raise ValueError(
                f"{name!r} has an image {parts[0].shape} and deviations {parts[1].shape}: all images of a figure have "
                f"the shape (H, W) of the first, {shape}."
            )
    columns = (
        ["reconstruction", "standard deviation"]
        if known is None
        else ["truth", "reconstruction", "absolute error", "standard deviation"]
    )
    figure, axes = panels(len(pairs), len(columns), 2.3, 2.3 * shape[0] / shape[1] + 0.1)
    figure.set_size_inches(max(2.3 * len(columns) + 1.0, 6.4), (2.25 * shape[0] / shape[1] + 0.15) * len(pairs) + 0.8)
    shades = [mean for mean, _ in pairs.values()] + ([] if known is None else [known])
    black = min(float(image.min()) for image in shades) if white is None else 0.0
    white = max(float(image.max()) for image in shades) if white is None else white
    grey = {"cmap": "gray", "vmin": black, "vmax": white}
    for row, (name, (mean, deviation)) in zip(axes, pairs.items(), strict=True):
        error = None if known is None else np.abs(mean - known)
        top = max(float(deviation.max()), 0.0 if error is None else float(error.max())) or 1.0
        hot = {"cmap": "magma", "vmin": 0.0, "vmax": top}
        images = [(mean, grey), (deviation, hot)]
        if known is not None and error is not None:
            images = [(known, grey), (mean, grey), (error, hot), (deviation, hot)]
        for ax, (image, scale) in zip(row, images, strict=True):
            _bare(ax)
            shown = ax.imshow(image, interpolation="nearest", **scale)
        bar = figure.colorbar(shown, ax=list(row), location="right", aspect=18, shrink=0.9)
        bar.set_label(f"error of a {words}", fontsize=8)
        bar.ax.tick_params(labelsize=8)
        row[0].set_ylabel(name, fontsize=9, color=INK)
    for ax, column in zip(axes[0], columns, strict=True):
        ax.set_title(column, fontsize=9, color=INK)
    axes[-1, 0].set_xlabel(f"black is {black:.3g}, white {white:.3g}", fontsize=8, color=INK)
    title(figure, heading)
    return figure


def _bare(ax: Axes) -> None:
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.grid(False)
