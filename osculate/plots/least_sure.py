"""The images that the model is least sure of, with what each method says about them."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from osculate.plots.images import picture
from osculate.plots.style import BLUE, INK, ORANGE, panels, title


def least_sure(
    images: np.ndarray,
    targets: np.ndarray,
    probabilities: Mapping[str, np.ndarray],
    classes: Sequence[str],
    count: int = 12,
) -> Figure:
    """A grid of the least sure test images: the true class, and each method's class with its probability.

    "Least sure" is the highest entropy under the last of the methods given.

    Args:
        images: (N, channels, height, width), one channel or three.
        targets: true classes (N,).
        probabilities: (N, C) for each method, by name.
        classes: the name of each class.
        count: how many images to show.

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
    figure, axes = panels(-(-len(chosen) // columns), columns, 1.7, 2.05 + 0.17 * len(probabilities))
    for ax in axes.flat:
        ax.axis("off")
    for ax, index in zip(axes.flat, chosen, strict=False):
        picture(ax, images[index], (float(images[index].min()), float(images[index].max())))
        _words(ax, int(targets[index]), {name: p[index] for name, p in probabilities.items()}, classes)
    title(figure, f"The {len(chosen)} test images the model is least sure of")
    return figure


def _words(ax: Axes, target: int, probabilities: Mapping[str, np.ndarray], classes: Sequence[str]) -> None:
    ax.set_title(f"is {classes[target]}", fontsize=9, color=INK, pad=3)
    for line, (name, p) in enumerate(probabilities.items()):
        guess = int(p.argmax())
        right = guess == target
        text = f"{name}: {classes[guess]}, {100 * p[guess]:.0f} %"
        ax.annotate(
            text,
            (0.5, -0.04 - 0.13 * line),
            xycoords="axes fraction",
            ha="center",
            va="top",
            fontsize=8,
            color=BLUE if right else ORANGE,
            weight="normal" if right else "bold",
        )
