"""Colours, axes, titles and legends of all figures, without changes to the global state of matplotlib."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis, Tick
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from torch import Tensor

from osculate.files import written_aside

# Okabe and Ito (2008): distinguishable under the common kinds of colour blindness, and in grey.
ORANGE = "#D55E00"
BLUE = "#0072B2"
GREEN = "#009E73"
PURPLE = "#CC79A7"
YELLOW = "#E69F00"
SKY = "#56B4E9"
INK = "#222222"
GREY = "#8A8A8A"
# Tol (2021), and a brown: further series beside those.
WINE, INDIGO, OLIVE, BROWN = "#882255", "#332288", "#999933", "#7A4B1E"
PALE = "#E6E6E6"
WHITE = "white"

#: Colours by method. The mode is always orange, its Laplace approximations are always cool colours.
COLOURS = {"MAP": ORANGE, "Laplace": BLUE, "full": BLUE, "kron": GREEN, "diag": PURPLE, "Laplace, tuned": GREEN}
COLOURS |= {"AE": ORANGE, "VAE": PURPLE, "MC dropout": YELLOW, "online Laplace": BLUE}
COLOURS |= {"deep ensemble": INK, "SWAG": GREY, "diagonal": PURPLE}
COLOURS |= {"block": INK, "approx_diag": BLUE, "mixed_diag": YELLOW, "BackPACK diag": ORANGE, "MAP, residual": ORANGE}
COLOURS |= {"θ̃, single λ": ORANGE, "θ̃, multiple λ": YELLOW, "θ*, single λ": BLUE, "θ*, multiple λ": GREEN}


def _pale(tint: str) -> str:
    red, green, blue = (0.5 + 0.5 * part for part in to_rgb(tint))
    return to_hex((red, green, blue))


#: Colours in turn of series without one of their own: twelve, then these in pale.
_FULL = (BLUE, GREEN, PURPLE, YELLOW, SKY, ORANGE, INK, GREY, WINE, INDIGO, OLIVE, BROWN)
TINTS = (*_FULL, *map(_pale, _FULL))


def _turns(*first: str) -> tuple[str, ...]:
    return (*first, *(tint for tint in TINTS if tint not in first))


#: The same colours in other orders: of ways to predict (linearised ones come last and are cool), of scores, and of data
#: out of distribution beside grey test data.
WAYS = _turns(ORANGE, YELLOW, PURPLE, BLUE, GREEN, INK, GREY)
SCORES = _turns(BLUE, ORANGE, GREEN, PURPLE, YELLOW, INK, SKY)
OUTSIDE = tuple(tint for tint in _turns(ORANGE, PURPLE, YELLOW, INK) if tint != GREY)
#: Markers and dashes for lines that differ by more than their colour.
MARKERS = "os^Dv<*p"
DASHES = ("-", "--", ":", "-.")

#: Colour maps: images as ink on paper or as photographs, errors, signed values, values, densities in blue or in grey,
#: two classes, and uncertainty under coloured dots.
PAPER, PHOTOGRAPH, ERRORS, SIGNED, VALUES = "gray_r", "gray", "magma", "RdBu_r", "viridis"
DENSITY, GREY_DENSITY = "Blues", "Greys"
TWO_CLASSES = LinearSegmentedColormap.from_list("two classes", [BLUE, WHITE, ORANGE])
UNCERTAINTY = LinearSegmentedColormap.from_list("uncertainty", [WHITE, "#FDF0DA", "#F8D5A3", "#E8AC68", "#B8733C"])

#: Dots per inch of a file.
DPI = 130
#: Numbers along a line.
Values = Sequence[float | int] | np.ndarray
T = TypeVar("T")


def arrays(draw: Callable[..., T]) -> Callable[..., T]:
    """Decorate a plot by converting tensors in its arguments, also in mappings and tuples, to arrays on the CPU.

    >>> arrays(lambda rows: {name: type(row).__name__ for name, row in rows.items()})({"a": torch.ones(2)})
    {'a': 'ndarray'}
    """

    @wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> T:
        return draw(*map(_array, args), **{name: _array(value) for name, value in kwargs.items()})

    return drawn


def _array(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, Mapping):
        return {name: _array(part) for name, part in value.items()}
    if type(value) in (tuple, list):
        return type(value)(map(_array, value))
    return value


def tints(names: Iterable[str], turns: Sequence[str] = TINTS) -> dict[str, str]:
    """A colour for each series, no two alike up to the number of colours: its own, or the next that none has taken.

    Args:
        names: Names of the series.
        turns: Colours in turn, for names without a colour of their own.

    >>> tints(["MAP", "wake-sleep", "VI"]) == {"MAP": ORANGE, "wake-sleep": BLUE, "VI": GREEN}
    True
    """
    names, own = list(dict.fromkeys(names)), dict[str, str]()
    for name in names:
        if name in COLOURS and COLOURS[name] not in own.values():
            own[name] = COLOURS[name]
    free = cycle([tint for tint in turns if tint not in own.values()] or turns)
    return {name: own.get(name) or next(free) for name in names}


def class_tints(count: int) -> list[Any]:
    """Colours of classes, all of them different, and of at most 20 far from the grey of what is not coloured."""
    if count > 20:
        return list(matplotlib.colormaps["turbo"](np.linspace(0, 1, count)))
    found = list(matplotlib.colormaps["tab10" if count <= 10 else "tab20"].colors)  # type: ignore[attr-defined]
    return [*found[:7], INK, *found[8:]]


def empty(width: float, height: float) -> Figure:
    """A figure without axes, with a size in inches."""
    return Figure(figsize=(width, height), layout="constrained", facecolor=WHITE)


def panels(
    rows: int, columns: int, width: float, height: float, count: int | None = None, **kwargs: Any
) -> tuple[Figure, np.ndarray]:
    """A figure with a grid of plain axes.

    Args:
        rows: Number of rows of panels.
        columns: Number of columns of panels.
        width: Width of one panel, in inches.
        height: Height of one panel, in inches.
        count: Number of panels in use; the axes after them are hidden.
        **kwargs: Options of ``Figure.subplots``.
    """
    figure = empty(columns * width, rows * height)
    axes: np.ndarray = figure.subplots(rows, columns, squeeze=False, **kwargs)
    for ax in axes.flat:
        plain(ax)
    for ax in axes.flat[count if count is not None else axes.size :]:
        ax.set_visible(False)
    return figure, axes


def wrapped(count: int, most: int, width: float, height: float, **kwargs: Any) -> tuple[Figure, np.ndarray]:
    """A figure with ``count`` panels, at most ``most`` in a row; otherwise as :func:`panels`."""
    columns = min(most, count)
    return panels(-(-count // columns), columns, width, height, count, **kwargs)


def plain(ax: Axes) -> None:
    """Remove elements of the axes that carry no information."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.tick_params(colors=INK, labelsize=9, color=GREY, length=3)
    ax.grid(color=PALE, linewidth=0.6)
    ax.set_axisbelow(True)


def bare(ax: Axes) -> None:
    """Remove ticks, spines and grid, for images."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.grid(False)


def label(ax: Axes, name: str | None = None, x: str | None = None, y: str | None = None) -> None:
    """Set the title of a panel and the labels of its axes; None leaves one unchanged."""
    if name is not None:
        ax.set_title(name, fontsize=10, color=INK, loc="left")
    if x is not None:
        ax.set_xlabel(x, fontsize=9)
    if y is not None:
        ax.set_ylabel(y, fontsize=9)


def label_outer(axes: np.ndarray, x: str, y: str, count: int | None = None) -> None:
    """Label the lowest visible panel of each column and the first panel of each row."""
    number = axes.size if count is None else count
    for ax in axes.flat[max(0, number - axes.shape[1]) : number]:
        label(ax, x=x)
        ax.tick_params(labelbottom=True)  # shared axes label their lowest row only
    for ax in axes[:, 0]:
        label(ax, y=y)


def ticks(ax: Axes, values: Values, fontsize: float | int = 9) -> None:
    """Make the horizontal axis logarithmic, with ticks at the given values only."""
    ax.set_xscale("log")
    ax.set_xticks(list(values), [f"{value:g}" for value in values], fontsize=fontsize)
    ax.xaxis.minorticks_off()


def legend(ax: Axes, **kwargs: Any) -> None:
    """Draw the legend of a panel."""
    ax.legend(**{"fontsize": 8, "frameon": False, **kwargs})


def legend_below(
    figure: Figure, handles: Iterable[Any] | Axes, columns: int | None = None, fontsize: float | int = 8, **kwargs: Any
) -> None:
    """Draw one legend of all panels below them.

    Args:
        figure: The figure.
        handles: Artists with labels, or the axes that hold them.
        columns: Number of columns; by default as many as fit.
        fontsize: Size of the labels, in points.
        **kwargs: Options of ``Figure.legend``.
    """
    shown = handles.get_legend_handles_labels()[0] if isinstance(handles, Axes) else list(handles)
    if not shown:
        return
    if columns is None:
        longest = max(len(str(handle.get_label())) for handle in shown)
        columns = max(1, int(figure.get_figwidth() / (0.7 + 0.0095 * fontsize * longest)))
    options: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "fontsize": fontsize, "frameon": False}
    figure.legend(handles=shown, **(options | {"handlelength": 2.8} | kwargs))


def colour_bar(figure: Figure, image: Any, ax: Any, name: str, **kwargs: Any) -> Any:
    """Draw a labelled colour bar right of one or several panels, and return it."""
    bar = figure.colorbar(image, ax=ax, location="right", **kwargs)
    bar.set_label(name, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return bar


def title(figure: Figure, text: str) -> Figure:
    """Draw the heading of a figure, above all panels, and return the figure."""
    figure.suptitle(text, fontsize=12, color=INK)
    return figure


def save(figure: Figure, path: str | Path, dpi: int = DPI) -> Path:
    """Write a figure as PNG to a temporary file and rename it, so that no incomplete file is ever seen.

    Args:
        figure: The figure.
        path: Path of the file; missing folders are made.
        dpi: Dots per inch.
    """
    path = Path(path)
    with written_aside(path) as aside:
        write(figure, aside, dpi)
    return path


def write(figure: Figure, file: Any, dpi: int = DPI) -> None:
    """Write a figure as PNG to a path or an open file; dollars in names and headings are no mathematics."""
    numbers = {label for tick in figure.findobj(Tick) for label in (tick.label1, tick.label2)}
    numbers |= {axis.offsetText for axis in figure.findobj(Axis)}
    for text in figure.findobj(Text):
        text.set_parse_math(text in numbers)
    figure.savefig(file, format="png", dpi=dpi)
