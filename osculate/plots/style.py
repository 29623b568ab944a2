"""One quiet style for all figures: colours that are told apart without colour vision, thin axes, no global state."""

import os
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito (2008): distinguishable under the common kinds of colour blindness, and in grey.
ORANGE = "#D55E00"
BLUE = "#0072B2"
GREEN = "#009E73"
PURPLE = "#CC79A7"
YELLOW = "#E69F00"
INK = "#222222"
GREY = "#8A8A8A"
PALE = "#E6E6E6"

#: The mode is always orange, its Laplace approximations are always cool colours.
COLOURS = {"MAP": ORANGE, "Laplace": BLUE, "full": BLUE, "kron": GREEN, "diag": PURPLE, "Laplace, tuned": GREEN}
COLOURS |= {"AE": ORANGE, "VAE": PURPLE, "MC dropout": YELLOW, "online Laplace": BLUE}
_CYCLE = (BLUE, GREEN, PURPLE, YELLOW)
_TINTS = (*_CYCLE, INK, ORANGE, GREY)
#: Of lines that are told apart by more than their colour.
MARKERS = "os^Dv<*"


def colour(label: str, index: int = 0) -> str:
    """The colour of a method by its label; labels without one of their own take the next of the cycle."""
    return COLOURS.get(label, _CYCLE[index % len(_CYCLE)])


def tints(names: Iterable[str]) -> dict[str, str]:
    """A colour for each method: its own where it has one, else one that no other has taken.

    >>> tints(["MAP", "wake-sleep", "VI"]) == {"MAP": ORANGE, "wake-sleep": BLUE, "VI": GREEN}
    True
    """
    names = list(dict.fromkeys(names))
    named = {name: COLOURS[name] for name in names if name in COLOURS}
    free = cycle(tint for tint in _TINTS if tint not in named.values())
    return {name: named.get(name) or next(free) for name in names}


def panels(rows: int, columns: int, width: float, height: float, **kwargs: Any) -> tuple[Figure, np.ndarray]:
    """A figure with a grid of quiet axes.

    Args:
        rows: number of rows of panels.
        columns: number of columns of panels.
        width: of one panel, in inches.
        height: of one panel, in inches.
        **kwargs: passed to ``Figure.subplots``.
    """
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained", facecolor="white")
    axes: np.ndarray = figure.subplots(rows, columns, squeeze=False, **kwargs)
    for ax in axes.flat:
        quiet(ax)
    return figure, axes


def quiet(ax: Axes) -> None:
    """Leave on an axis only what carries information."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.tick_params(colors=INK, labelsize=9, color=GREY, length=3)
    ax.grid(color=PALE, linewidth=0.6)
    ax.set_axisbelow(True)


def title(figure: Figure, text: str) -> None:
    """The figure's one sentence, above all panels."""
    figure.suptitle(text, fontsize=12, color=INK)


def save(figure: Figure, path: str | Path, dpi: int = 130) -> Path:
    """Write a figure as PNG: aside first, then renamed, so that no half-written picture is ever seen.

    Args:
        figure: what to draw.
        path: where; folders are made.
        dpi: dots per inch.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".tmp")
    figure.savefig(aside, format="png", dpi=dpi)
    os.replace(aside, path)
    return path
