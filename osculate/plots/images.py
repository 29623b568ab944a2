"""Images in rows: samples, reconstructions with their errors and standard deviations, imputations, manifolds."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from osculate.plots import style
from osculate.plots.maps import cells

#: Longer side of the mosaic of a manifold, in inches, and largest number of quantiles on an axis.
SIDE, TICKS = 6.2, 7


@style.arrays
def picture(ax: Axes, image: np.ndarray, limits: tuple[float, float]) -> None:
    """Draw one image on given axes: grey as ink on paper, three channels as colours.

    Args:
        ax: Axes to draw on.
        image: Pixels (channels, height, width), one channel or three, or (height, width).
        limits: Values drawn as white and black, or as no colour and full colour.
    """
    pixels = np.moveaxis(image, 0, -1).squeeze() if image.ndim == 3 else image
    low, high = limits
    scaled = np.clip((pixels - low) / ((high - low) or 1.0), 0, 1)
    ax.imshow(scaled, cmap=style.PAPER, vmin=0, vmax=1, interpolation="nearest")


@style.arrays
def image_grid(
    rows: Mapping[str, np.ndarray],
    heading: str,
    limits: tuple[float, float] | None = None,
    columns: int = 10,
    captions: Mapping[str, Sequence[str]] | None = None,
) -> Figure:
    """Draw images in labelled rows, such as samples of several models, all with one scale.

    Args:
        rows: Images (N, channels, height, width) by label, one channel or three.
        heading: Heading of the figure.
        limits: Values of white and black, by default those of :func:`grey_scale`. (1.0, 0.0) is a photograph in grey.
        columns: Largest number of images in a row.
        captions: Words under each image by row; rows may be missing.

    Raises:
        ValueError: there is no image, images cannot be drawn, or captions do not fit the rows.
    """
    rows = {label: _drawable(label, images)[:columns] for label, images in rows.items()}
    if not rows:
        raise ValueError("no images to draw: pass at least one row of them, by label.")
    limits = limits or grey_scale(*rows.values())
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
            ax.set_xlabel(caption, fontsize=8, color=style.INK, labelpad=2)
    return style.title(figure, heading)


@style.arrays
def reconstructions(
    images: np.ndarray,
    found: Mapping[str, tuple[np.ndarray, np.ndarray]],
    names: Sequence[str] = (),
    heading: str = "Reconstructions and their standard deviations",
) -> Figure:
    """Draw a column for each image: the input, and the mean and standard deviation of each method's reconstruction.

    All images have one scale, and all standard deviations one from zero.

    Args:
        images: Inputs (N, channels, height, width), one channel or three.
        found: Means and standard deviations by method, both of the shape of ``images``.
        names: Names of the columns, for example the data set of each.
        heading: Heading of the figure.

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
    limits = grey_scale(images, *(mean for mean, _ in found.values()))
    top = max(float(_over_channels(deviation).max()) for _, deviation in found.values()) or 1.0
    shown: AxesImage | None = None
    for n, image in enumerate(images):
        picture(axes[0, n], image, limits)
        axes[0, n].set_title(names[n] if names else "", fontsize=8, color=style.INK)
        for line, (mean, deviation) in enumerate(found.values()):
            picture(axes[1 + 2 * line, n], mean[n], limits)
            shown = cells(axes[2 + 2 * line, n], _over_channels(deviation)[n], cmap=style.ERRORS, vmin=0, vmax=top)
    assert shown is not None
    style.colour_bar(figure, shown, axes, "standard deviation of a pixel", shrink=0.6, aspect=30)
    return style.title(figure, heading)


def _over_channels(deviation: np.ndarray) -> np.ndarray:
    """The square root of the mean variance over channels, (N, height, width)."""
    return np.sqrt(np.square(deviation).mean(1))


def _drawable(label: str, images: np.ndarray) -> np.ndarray:
    if images.ndim != 4 or images.shape[1] not in (1, 3) or not len(images):
        raise ValueError(
            f"the images {label!r} have shape {images.shape}: give (N, channels, height, width), one channel or three,"
            " at least one image."
        )
    return images


#: Share of dark pixels, and darkness, from which grey images are ink on paper.
INK_SHARE, DARK = 0.4, 0.15
#: Share of the pixels of other images that may be clipped at either end of the scale.
CLIPPED = 0.01


@style.arrays
def grey_scale(images: np.ndarray, *others: np.ndarray) -> tuple[float, float]:
    """The values that :func:`picture` draws as white and black.

    Grey images are ink on paper if most of them is blank, as in handwriting, and values beyond blank and ink are
    clipped; otherwise they are photographs, whose largest values are white, and nearly nothing is clipped.

    Args:
        images: Images (N, channels, …), NaN where unknown.
        *others: Images in the same scale, such as reconstructions.
    """
    low, high = float(np.nanmin(images)), float(np.nanmax(images))
    if np.nanmean(images < low + DARK * (high - low)) >= INK_SHARE:
        return low, high
    ends = [np.nanquantile(each, (CLIPPED, 1 - CLIPPED)) for each in others]
    low, high = min([low, *(float(end[0]) for end in ends)]), max([high, *(float(end[1]) for end in ends)])
    return (low, high) if images.shape[1] == 3 else (high, low)


def _frames(labels: Sequence[str], columns: int, captioned: int = 0) -> tuple[Figure, np.ndarray]:
    """Axes without ticks, each row with its label at the left, and room for captions under ``captioned`` rows."""
    figure, axes = style.panels(len(labels), columns, 0.9, 0.98)
    # labels need room left of the first column, and headings over few columns
    figure.set_size_inches(max(0.9 * columns + 1.6, 5.6), 0.95 * len(labels) + 0.2 * captioned + 0.7)
    for line, label in zip(axes, labels, strict=True):
        for ax in line:
            style.bare(ax)
        line[0].set_ylabel(label, fontsize=9, color=style.INK, rotation=0, ha="right", va="center", labelpad=8)
    return figure, axes


@style.arrays
def error_maps(
    truth: np.ndarray | None,
    found: Mapping[str, tuple[np.ndarray, np.ndarray]],
    heading: str,
    words: str = "pixel",
    white: float | None = None,
) -> Figure:
    """Draw a row for each method: its image, the absolute error if the truth is known, and its standard deviation.

    All images have one scale; error and deviation share one in each row.

    Args:
        truth: True image (H, W); None if unknown.
        found: Image and standard deviation by method, both (H, W).
        heading: Heading of the figure.
        words: Name of an element of the image, for the colour bars.
        white: Largest value of a scale from 0; by default the scale runs over the range of the images.

    Raises:
        ValueError: there is no method, or shapes differ.
    """
    if not found:
        raise ValueError("no reconstruction to draw: pass at least one image with its standard deviation, by name.")
    known = [] if truth is None else [truth]
    shape = (known or [next(iter(found.values()))[0]])[0].shape
    for name, parts in found.items():
        if any(part.shape != shape or part.ndim != 2 for part in parts):
            raise ValueError(
                f"{name!r} has an image {parts[0].shape} and deviations {parts[1].shape}: all images of a figure have "
                f"the shape (H, W) of the first, {shape}."
            )
    columns = ["reconstruction", "standard deviation"]
    if known:
        columns = ["truth", "reconstruction", "absolute error", "standard deviation"]
    figure, axes = style.panels(len(found), len(columns), 2.3, 2.3 * shape[0] / shape[1] + 0.1)
    figure.set_size_inches(max(2.3 * len(columns) + 1.0, 6.4), (2.25 * shape[0] / shape[1] + 0.15) * len(found) + 0.8)
    shades = [mean for mean, _ in found.values()] + known
    black = min(float(image.min()) for image in shades) if white is None else 0.0
    white = max(float(image.max()) for image in shades) if white is None else white
    grey = {"cmap": style.PHOTOGRAPH, "vmin": black, "vmax": white}
    for row, (name, (mean, deviation)) in zip(axes, found.items(), strict=True):
        errors = [np.abs(mean - image) for image in known]
        largest = max(float(image.max()) for image in (*errors, deviation)) or 1.0
        hot = {"cmap": style.ERRORS, "vmin": 0.0, "vmax": largest}
        images = [(image, grey) for image in (*known, mean)] + [(image, hot) for image in (*errors, deviation)]
        for ax, (image, scale) in zip(row, images, strict=True):
            style.bare(ax)
            shown = cells(ax, image, **scale)
        style.colour_bar(figure, shown, list(row), f"error of a {words}", aspect=18, shrink=0.9)
        row[0].set_ylabel(name, fontsize=9, color=style.INK)
    for ax, column in zip(axes[0], columns, strict=True):
        ax.set_title(column, fontsize=9, color=style.INK)
    axes[-1, 0].set_xlabel(f"black is {black:.3g}, white {white:.3g}", fontsize=8, color=style.INK)
    return style.title(figure, heading)


@style.arrays
def attribution_maps(
    images: np.ndarray,
    found: Mapping[str, np.ndarray],
    heading: str,
    outlined: Sequence[Sequence[int]] = (),
) -> Figure:
    """Draw images, and below each a map of its attributions for each quantity: orange adds to it, blue subtracts.

    Each map has its own scale from its largest absolute value, as the attributions of an image add up to a change that
    differs between images. Attributions of channels are added.

    Args:
        images: Inputs (N, channels, height, width), one channel or three.
        found: Attributions (N, height, width), or of the shape of ``images``, by quantity.
        heading: Heading of the figure.
        outlined: A rectangle (top row, left column, height, width) for each image, drawn in all of its panels.

    Raises:
        ValueError: there are no attributions, shapes differ, or images cannot be drawn.
    """
    if not found:
        raise ValueError("no attributions to draw: pass those of at least one quantity, by its name.")
    _drawable("input", images)
    maps = {label: values.sum(1) if values.ndim == 4 else values for label, values in found.items()}
    for label, values in maps.items():
        if values.shape != (len(images), *images.shape[2:]):
            raise ValueError(
                f"the attributions {label!r} have shape {found[label].shape}, the images {images.shape}: give each "
                "pixel one."
            )
    figure, axes = _frames(["input", *maps], len(images))
    limits = grey_scale(images)
    for n, image in enumerate(images):
        picture(axes[0, n], image, limits)
        for line, values in enumerate(maps.values(), 1):
            scaled = values[n] / (np.abs(values[n]).max() or 1.0)
            shown = cells(axes[line, n], scaled, cmap=style.TWO_CLASSES, vmin=-1, vmax=1)
    for n, (top, left, height, width) in enumerate(outlined):
        for ax in axes[:, n]:
            ax.add_patch(Rectangle((left - 0.5, top - 0.5), width, height, fill=False, edgecolor=style.GREEN))
    bar = style.colour_bar(figure, shown, axes[1:], "attribution, of the largest in its map", shrink=0.8, aspect=30)
    bar.set_ticks([-1, 0, 1], labels=["lowers it", "0", "raises it"])
    return style.title(figure, heading)


@style.arrays
def most_uncertain(
    images: np.ndarray,
    targets: style.Values,
    probabilities: Mapping[str, np.ndarray],
    classes: Sequence[str],
    count: int = 12,
) -> Figure:
    """Draw the most uncertain test images with their true class, and each method's prediction with its probability.

    Uncertainty is the entropy under the last method.

    Args:
        images: Test images (N, channels, height, width), one channel or three.
        targets: True classes (N,).
        probabilities: Class probabilities (N, C) by method.
        classes: Names of the classes.
        count: Number of images to show.

    Raises:
        ValueError: no method is given, or sizes do not fit.
    """
    if not probabilities:
        raise ValueError("no probabilities to compare: pass at least one method's, by name.")
    for name, p in probabilities.items():
        if p.shape != (len(images), len(classes)):
            raise ValueError(f"probabilities of {name} have shape {p.shape}, not {(len(images), len(classes))}.")
    last = list(probabilities.values())[-1]
    entropy = -(last * np.log(np.clip(last, 1e-12, None))).sum(1)
    chosen = np.argsort(-entropy, kind="stable")[:count]
    columns = min(6, len(chosen))
    figure, axes = style.panels(-(-len(chosen) // columns), columns, 1.7, 2.05 + 0.17 * len(probabilities))
    for ax in axes.flat:
        ax.axis("off")
    for ax, index in zip(axes.flat, chosen, strict=False):
        picture(ax, images[index], grey_scale(images[index : index + 1]))
        ax.set_title(f"is {classes[int(targets[index])]}", fontsize=9, color=style.INK, pad=3)
        for line, (name, each) in enumerate(probabilities.items()):
            guess = int(each[index].argmax())
            right = guess == int(targets[index])
            ax.annotate(
                f"{name}: {classes[guess]}, {100 * each[index][guess]:.0f} %",
                (0.5, -0.04 - 0.13 * line),
                xycoords="axes fraction",
                ha="center",
                va="top",
                fontsize=8,
                color=style.BLUE if right else style.ORANGE,
                weight="normal" if right else "bold",
            )
    return style.title(figure, f"The {len(chosen)} test images with the most uncertain predictions")


@style.arrays
def manifold(
    shown: Mapping[str, np.ndarray],
    heading: str,
    names: tuple[str, str] = ("quantile of the first code", "quantile of the second code"),
    ends: tuple[float, float] | None = None,
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Draw the images of a grid of two-dimensional codes as a mosaic (Kingma and Welling, 2014, figure 4).

    Args:
        shown: Images (R, C, channels, height, width) by panel, one channel or three; row i
            is that of the i-th value of the second code, drawn upwards, column j that of the j-th value of the first.
        heading: Heading of the figure.
        names: Labels of both axes.
        ends: Quantiles of the first and the last value of each code, with the others evenly between; by default the
            centres of equal cells, as in :func:`osculate.autoencoders.manifold`.
        limits: Values of white and black by panel, by default those of :func:`grey_scale`.

    Raises:
        ValueError: there is no panel, images have another shape, or a code has fewer than two values.
    """
    if not shown:
        raise ValueError("no images to draw: pass at least one manifold, by its title.")
    mosaics = {name: _mosaic(images) for name, images in shown.items()}
    inches = [SIDE * mosaic.shape[2] / max(mosaic.shape[1:]) + 0.8 for mosaic in mosaics.values()]
    high = max(SIDE * mosaic.shape[1] / max(mosaic.shape[1:]) for mosaic in mosaics.values())
    figure, axes = style.panels(1, len(shown), 1.0, 1.0)
    figure.set_size_inches(max(sum(inches), 5.6), high + 1.0)
    for ax, (name, mosaic) in zip(axes[0], mosaics.items(), strict=True):
        rows, columns, _, height, width = shown[name].shape
        picture(ax, mosaic, (limits or {}).get(name) or grey_scale(mosaic[None]))
        ax.set_xticks(*_ticks(columns, width, ends))
        places, words = _ticks(rows, height, ends)
        ax.set_yticks(rows * height - 1 - places, words)  # pixels count downwards
        ax.set_xlabel(names[0], fontsize=10)
        ax.set_ylabel(names[1], fontsize=10)
        ax.set_title(name, fontsize=11, color=style.INK)
        ax.grid(False)
    return style.title(figure, heading)


def _mosaic(images: np.ndarray) -> np.ndarray:
    """The images as one (channels, R height, C width), the first row at the bottom."""
    if images.ndim != 5 or images.shape[2] not in (1, 3) or min(images.shape[:2]) < 2:
        raise ValueError(
            f"the images have shape {images.shape}: give (rows, columns, channels, height, width), one channel or "
            "three, at least two rows and two columns."
        )
    rows, columns, channels, height, width = images.shape
    upwards = images[::-1].transpose(2, 0, 3, 1, 4)
    return upwards.reshape(channels, rows * height, columns * width)


def _ticks(count: int, pixels: int, ends: tuple[float, float] | None) -> tuple[np.ndarray, list[str]]:
    """Positions in pixels and labels of quantiles; the outermost are at the centres of the outermost images."""
    number = min(count, TICKS)
    places = pixels * (np.linspace(0, count - 1, number) + 0.5) - 0.5
    return places, [f"{quantile:.2g}" for quantile in np.linspace(*(ends or (0.5 / count, 1 - 0.5 / count)), number)]


@style.arrays
def imputations(
    truth: np.ndarray,
    observed: np.ndarray,
    images: np.ndarray,
    heading: str,
    predicted: np.ndarray | None = None,
    draws: int = 4,
    classes: Sequence[str] | None = None,
) -> Figure:
    """Draw a column for each datum: truth, observed pixels, mean and standard deviation over draws, and single draws.

    With ``predicted``, draws of different classes come first, the most frequent class at the top, each labelled by its
    class and the number of draws of that class. Otherwise the first draws are shown.

    Args:
        truth: True images (N, H, W) or (N, channels, H, W), NaN where unknown.
        observed: True for observed pixels, of the shape of ``truth`` or of one image.
        images: Completed images (S, N, …).
        heading: Heading of the figure.
        predicted: Predicted class of each draw (S, N).
        draws: Number of draws to show.
        classes: Names of the classes; by default their numbers.

    Raises:
        ValueError: shapes do not fit, or there is no image or no draw to show.
    """
    if images.shape[1:] != truth.shape or truth.ndim not in (3, 4) or not images.size or draws < 1:
        raise ValueError(
            f"{draws} draws of images {images.shape} do not fit true images {truth.shape}: pass (S, N, …) and (N, …) "
            "with rows and columns, and at least one draw."
        )
    seen = np.broadcast_to(observed, truth.shape)
    if predicted is not None and predicted.shape != images.shape[:2]:
        raise ValueError(f"classes of shape {predicted.shape} do not fit images {images.shape}: pass one for each.")
    shown = min(draws, len(images))
    mean, deviation = images.mean(0), images.std(0)
    low, high = grey_scale(truth if truth.ndim == 4 else truth[:, None])
    top = float(deviation.max())
    figure, axes = style.panels(4 + shown, len(truth), 1.05, 1.05 if predicted is None else 1.16)
    for n, column in enumerate(axes.T):
        _show(column[0], truth[n], ~np.isnan(truth[n]), low, high)
        _show(column[1], truth[n], seen[n], low, high)
        _show(column[2], mean[n], np.ones_like(seen[n]), low, high)
        _show(column[3], deviation[n], np.ones_like(seen[n]), 0.0, top, style.DENSITY)
        for ax, s in zip(
            column[4:], _order(images[:, n], None if predicted is None else predicted[:, n]), strict=False
        ):
            _show(ax, images[s, n], np.ones_like(seen[n]), low, high)
            if predicted is not None:
                kind, count = int(predicted[s, n]), int((predicted[:, n] == predicted[s, n]).sum())
                name = str(kind) if classes is None else classes[kind]
                ax.set_xlabel(f"{name} ({count} of {len(images)})", fontsize=7.5, color=style.INK, labelpad=2)
    words = [
        "truth",
        "observed\n(hatched: hidden)",
        f"mean of\n{len(images)} draws",
        f"standard\ndeviation\n(darkest: {top:.2g})",
    ]
    note = "" if predicted is None else "\n(predicted class\nand its count)"
    words += [f"draw {s + 1}{'' if s else note}" for s in range(shown)]
    for ax, word in zip(axes[:, 0], words, strict=True):
        ax.set_ylabel(word, fontsize=8.5, color=style.INK, rotation=0, ha="right", va="center", labelpad=6)
    return style.title(figure, heading)


def _order(images: np.ndarray, predicted: np.ndarray | None) -> list[int]:
    """Order of the draws of one datum: one of every class before a second of any, frequent classes first."""
    if predicted is None:
        return list(range(len(images)))
    counts = {kind: int((predicted == kind).sum()) for kind in predicted.tolist()}
    turn = [int((predicted[:s] == kind).sum()) for s, kind in enumerate(predicted)]
    return sorted(range(len(images)), key=lambda s: (turn[s], -counts[int(predicted[s])], s))


def _show(ax: Axes, image: np.ndarray, seen: np.ndarray, low: float, high: float, colours: str = style.PAPER) -> None:
    """Draw an image of one channel or three, hatched where no channel is observed."""
    pixels, observed = (image, seen) if image.ndim == 2 else (np.moveaxis(image, 0, -1), seen.any(0))
    scaled = np.clip((np.nan_to_num(pixels) - low) / ((high - low) or 1.0), 0, 1)
    if scaled.ndim == 3 and (scaled.shape[-1] == 1 or colours != style.PAPER):
        scaled = scaled.mean(-1)
    rgb = colormaps[colours](scaled)[..., :3] if scaled.ndim == 2 else scaled
    rows, columns = observed.shape
    patch = Rectangle(
        (-0.5, -0.5), columns, rows, facecolor=style.PALE, edgecolor=style.GREY, hatch="//////", linewidth=0
    )
    ax.add_patch(patch)
    ax.imshow(np.dstack([rgb, observed.astype(float)]), interpolation="nearest", zorder=2)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(False)
    tint = style.BLUE if colours != style.PAPER else style.GREY
    for spine in ax.spines.values():
        spine.set(visible=True, color=tint, linewidth=0.6)
