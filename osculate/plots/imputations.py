"""Imputed images: the truth, its observed part, and draws of the missing part."""

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from osculate.plots.style import BLUE, GREY, INK, PALE, PAPER, arrays, panels, title


@arrays
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

    With classes, draws of different classes come first, the most frequent class at the top, each labelled by its class
    and the frequency of the class among all draws. Without classes, the first draws are shown.

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
    low, high = float(np.nanmin(truth)), float(np.nanmax(truth))
    top = float(deviation.max())
    figure, axes = panels(4 + shown, len(truth), 1.05, 1.05 if predicted is None else 1.16)
    for n, column in enumerate(axes.T):
        _show(column[0], truth[n], ~np.isnan(truth[n]), low, high)
        _show(column[1], truth[n], seen[n], low, high)
        _show(column[2], mean[n], np.ones_like(seen[n]), low, high)
        _show(column[3], deviation[n], np.ones_like(seen[n]), 0.0, top, "Blues")
        for ax, s in zip(
            column[4:], _order(images[:, n], None if predicted is None else predicted[:, n]), strict=False
        ):
            _show(ax, images[s, n], np.ones_like(seen[n]), low, high)
            if predicted is not None:
                kind, count = int(predicted[s, n]), int((predicted[:, n] == predicted[s, n]).sum())
                name = str(kind) if classes is None else classes[kind]
                ax.set_xlabel(f"{name} ({count} of {len(images)})", fontsize=7.5, color=INK, labelpad=2)
    words = [
        "truth",
        "observed\n(hatched: hidden)",
        f"mean of\n{len(images)} draws",
        f"standard\ndeviation\n(darkest: {top:.2g})",
    ]
    note = "" if predicted is None else "\n(class it is taken\nfor, how often)"
    words += [f"draw {s + 1}{'' if s else note}" for s in range(shown)]
    for ax, word in zip(axes[:, 0], words, strict=True):
        ax.set_ylabel(word, fontsize=8.5, color=INK, rotation=0, ha="right", va="center", labelpad=6)
    title(figure, heading)
    return figure


def _order(images: np.ndarray, predicted: np.ndarray | None) -> list[int]:
    """Order of the draws of one datum: one of every class before a second of any, frequent classes first."""
    if predicted is None:
        return list(range(len(images)))
    counts = {kind: int((predicted == kind).sum()) for kind in predicted.tolist()}
    turn = [int((predicted[:s] == kind).sum()) for s, kind in enumerate(predicted)]
    return sorted(range(len(images)), key=lambda s: (turn[s], -counts[int(predicted[s])], s))


def _show(ax: Axes, image: np.ndarray, seen: np.ndarray, low: float, high: float, colours: str = PAPER) -> None:
    """Draw an image of one channel or three, hatched where no channel is observed."""
    pixels, observed = (image, seen) if image.ndim == 2 else (np.moveaxis(image, 0, -1), seen.any(0))
    scaled = np.clip((np.nan_to_num(pixels) - low) / ((high - low) or 1.0), 0, 1)
    if scaled.ndim == 3 and (scaled.shape[-1] == 1 or colours != PAPER):
        scaled = scaled.mean(-1)
    rgb = colormaps[colours](scaled)[..., :3] if scaled.ndim == 2 else scaled
    rows, columns = observed.shape
    patch = Rectangle((-0.5, -0.5), columns, rows, facecolor=PALE, edgecolor=GREY, hatch="//////", linewidth=0)
    ax.add_patch(patch)
    ax.imshow(np.dstack([rgb, observed.astype(float)]), interpolation="nearest", zorder=2)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(False)
    tint = BLUE if colours != PAPER else GREY
    for spine in ax.spines.values():
        spine.set(visible=True, color=tint, linewidth=0.6)
