"""Images in rows: samples of models, and reconstructions with their standard deviations."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from osculate.plots.arrays import arrays
from osculate.plots.style import INK, panels, title


def picture(ax: Axes, image: np.ndarray, limits: tuple[float, float]) -> None:
    """One image on axes of its own: grey as ink on paper, three channels as colours.

    Args:
        ax: where.
        image: (channels, height, width), one channel or three, or (height, width).
        limits: the values that are drawn white and black, or as no colour and full colour.
    """
    pixels = np.moveaxis(image, 0, -1).squeeze() if image.ndim == 3 else image
    low, high = limits
    scaled = np.clip((pixels - low) / ((high - low) or 1.0), 0, 1)
    ax.imshow(scaled, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")


@arrays
def image_grid(
    rows: Mapping[str, np.ndarray],
    heading: str,
    limits: tuple[float, float] | None = None,
    columns: int = 10,
    captions: Mapping[str, Sequence[str]] | None = None,
) -> Figure:
    """Images in labelled rows, such as those that each model generates, all in one scale.

    Args:
        rows: images (N, channels, height, width) by label, one channel or three.
        heading: the figure's sentence.
        limits: the values of white and black; by default the smallest and the largest of the first row, beyond which
            the others are clipped. (1.0, 0.0) is a photograph in grey.
        columns: how many of each are shown.
        captions: by row, words under each image shown; rows may be missing.

    Raises:
        ValueError: there is no image, images of a shape that cannot be drawn, or captions that do not fit the rows.
    """
    rows = {label: _drawable(label, images)[:columns] for label, images in rows.items()}
    if not rows:
        raise ValueError("no images to draw: pass at least one row of them, by label.")
    limits = limits or _limits(next(iter(rows.values())))
    captions = captions or {}
    if unknown := sorted(set(captions) - set(rows)):
        raise ValueError(f"captions of {unknown}, but the rows are {list(rows)}: give them by the same names.")
    figure, axes = _frames(list(rows), max(map(len, rows.values())), len(captions))
    for line, (label, images) in zip(axes, rows.items(), strict=True):
        words = captions.get(label, [""] * len(images))
        if len(words) < len(images):
            raise ValueError(f"{len(words)} captions for {len(images)} images {label!r}: give each one, or none.")
        for ax, image, caption in zip(line, images, words, strict=False):
            picture(ax, image, limits)
            ax.set_xlabel(caption, fontsize=8, color=INK, labelpad=2)
    title(figure, heading)
    return figure


@arrays
def reconstructions(
    images: np.ndarray,
    found: Mapping[str, tuple[np.ndarray, np.ndarray]],
    names: Sequence[str] = (),
    heading: str = "What the networks make of an image, and how far they differ",
) -> Figure:
    """A column for each image: the input, then for each method the mean reconstruction and its standard deviation.

    All images are drawn in the scale of the inputs, all standard deviations in one scale, from zero.

    Args:
        images: inputs (N, channels, height, width), one channel or three.
        found: by method, means and standard deviations, both of the shape of ``images``.
        names: of the columns, for example the data set of each.
        heading: the figure's sentence.

    Raises:
        ValueError: there is no method, shapes differ, or images cannot be drawn.
    """
    if not found:
        raise ValueError("no reconstructions to draw: pass at least one method's, by name.")
    _drawable("input", images)
    if names and len(names) != len(images):
        raise ValueError(f"{len(names)} names for {len(images)} images: give each column one, or none.")
    for label, pair in found.items():
        for what, values in zip(("mean", "standard deviation"), pair, strict=True):
            if values.shape != images.shape:
                raise ValueError(f"the {what} of {label!r} has shape {values.shape}, the images {images.shape}.")
    labels = ["input", *(f"{label}\n{what}" for label in found for what in ("mean", "st. dev."))]
    figure, axes = _frames(labels, len(images))
    limits = _limits(images)
    top = max(float(_over_channels(deviation).max()) for _, deviation in found.values()) or 1.0
    shown: AxesImage | None = None
    for n, image in enumerate(images):
        picture(axes[0, n], image, limits)
        axes[0, n].set_title(names[n] if names else "", fontsize=8, color=INK)
        for line, (mean, deviation) in enumerate(found.values()):
            picture(axes[1 + 2 * line, n], mean[n], limits)
            shown = axes[2 + 2 * line, n].imshow(_over_channels(deviation)[n], cmap="magma", vmin=0, vmax=top)
    assert shown is not None
    bar = figure.colorbar(shown, ax=axes, location="right", shrink=0.6, aspect=30)
    bar.set_label("standard deviation of a pixel", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    title(figure, heading)
    return figure


def _over_channels(deviation: np.ndarray) -> np.ndarray:
    """(N, height, width): the root of the mean variance of the channels."""
    return np.sqrt(np.square(deviation).mean(1))


def _drawable(label: str, images: np.ndarray) -> np.ndarray:
    if images.ndim != 4 or images.shape[1] not in (1, 3) or not len(images):
        raise ValueError(
            f"the images {label!r} have shape {images.shape}: give (N, channels, height, width), one channel or three,"
            " at least one image."
        )
    return images


def _limits(images: np.ndarray) -> tuple[float, float]:
    return float(images.min()), float(images.max())


def _frames(labels: Sequence[str], columns: int, captioned: int = 0) -> tuple[Figure, np.ndarray]:
    """Axes without ticks, each row with its label at the left, and room for captions under some of them."""
    figure, axes = panels(len(labels), columns, 0.9, 0.98)
    # labels stand left of the first column, and headings need room over few columns
    figure.set_size_inches(max(0.9 * columns + 1.6, 5.6), 0.95 * len(labels) + 0.2 * captioned + 0.7)
    for line, label in zip(axes, labels, strict=True):
        for ax in line:
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
            ax.grid(False)
        line[0].set_ylabel(label, fontsize=9, color=INK, rotation=0, ha="right", va="center", labelpad=8)
    return figure, axes
