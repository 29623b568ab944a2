"""Functions along a line: predictive means with error bars, and functions drawn from a posterior."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from osculate.plots import style
from osculate.plots.lines import spread

#: Opacity of a band by its half width, in standard deviations.
_ALPHA = {1: 0.32, 2: 0.18, 3: 0.14}


@dataclass(frozen=True)
class Band:
    """A predictive distribution along a line.

    Args:
        x: Inputs (G,), ascending.
        mean: Predictive mean (G,), in units of the target.
        sd: Predictive standard deviation (G,), in units of the target.
        note: A few words in the title of the panel.
    """

    x: style.Values
    mean: style.Values
    sd: style.Values
    note: str = ""


@dataclass(frozen=True)
class Draws:
    """Functions along a line.

    Args:
        x: Inputs (G,), ascending.
        draws: Sampled functions, one a row, (S, G).
        mean: Mean of these draws, or of a larger number (G,).
        mode: The network at its mode (G,).
        note: A few words in the title of the panel.
    """

    x: style.Values
    draws: np.ndarray
    mean: style.Values
    mode: style.Values
    note: str = ""


@style.arrays
def band(
    ax: Axes,
    shown: Band,
    tint: str,
    data: tuple[style.Values, style.Values] | None = None,
    truth: style.Values | None = None,
    gaps: Sequence[tuple[float, float]] = (),
    widths: Sequence[int] = (2, 1),
) -> None:
    """Draw one predictive on given axes: mean and bands, data, the true function, and gaps without data.

    Args:
        ax: Axes to draw on.
        shown: The predictive.
        tint: Colour of mean and bands.
        data: Training inputs and targets.
        truth: The true function on the inputs of the band (G,), dashed.
        gaps: Intervals without data.
        widths: Half widths of the bands, in standard deviations, the widest first.
    """
    for low, high in gaps:
        ax.axvspan(low, high, color=style.PALE, alpha=0.6, linewidth=0)
        place = ((low + high) / 2, 0.03)
        ax.annotate("no data", place, xycoords=("data", "axes fraction"), ha="center", fontsize=8, color=style.GREY)
    mean, sd = np.asarray(shown.mean), np.asarray(shown.sd)
    for width in widths:
        spread(ax, shown.x, mean - width * sd, mean + width * sd, tint, _ALPHA[width], label=f"± {width} sd")
    if data is not None:
        few = len(data[0]) < 100  # many dots would cover the mean
        ax.plot(*data, ".", color=style.INK, markersize=4 if few else 2, zorder=3 if few else 2, label="data")
    if truth is not None:
        ax.plot(shown.x, truth, "--", color=style.GREY, linewidth=1, label="true function")
    ax.plot(shown.x, mean, color=tint, linewidth=1.8, label="mean")
    ax.set_xlim(shown.x[0], shown.x[-1])


def scale_to(ax: Axes, values: style.Values, room: float) -> None:
    """Limit the vertical axis to the range of the values, extended by its share ``room`` below and above."""
    low, high = float(np.min(values)), float(np.max(values))
    ax.set_ylim(low - room * (high - low), high + room * (high - low))


@style.arrays
def regression_bands(
    bands: Mapping[str, Band],
    x: style.Values,
    y: style.Values,
    gaps: Sequence[tuple[float, float]] = (),
    truth: style.Values | None = None,
    columns: int = 2,
    heading: str = "Do the error bars grow where there are no data?",
) -> Figure:
    """Draw data, mean, and bands of one and two standard deviations; one panel for each posterior.

    Args:
        bands: The predictive of each posterior, by name.
        x: Training inputs (N,).
        y: Training targets (N,).
        gaps: Intervals without data, marked in each panel.
        truth: The true function on the inputs of the bands (G,); if given, the axes are scaled to it.
        columns: Largest number of panels in a row.
        heading: Heading of the figure.

    Raises:
        ValueError: there is no band.
    """
    if not bands:
        raise ValueError("no predictive band to draw: pass at least one, by name of its posterior.")
    figure, axes = style.wrapped(
        len(bands), columns, *((4.6, 2.9) if columns < 3 else (3.0, 2.9)), sharex=True, sharey=True
    )
    colours = style.tints(bands) if columns < 3 else dict.fromkeys(bands, style.BLUE)
    for ax, (name, shown) in zip(axes.flat, bands.items(), strict=False):
        band(ax, shown, colours[name], (x, y), truth, gaps, (2, 1) if truth is None else (3, 2, 1))
        separator = ": " if columns < 3 else "\n"
        style.label(ax, f"{name}{separator}{shown.note}" if shown.note else name)
    scale_to(axes[0, 0], y if truth is None else truth, 1.1 if truth is None else 0.12)
    style.label_outer(axes, "input x", "output y", len(bands))
    if columns < 3:
        style.legend(axes[0, 0], loc="upper left", ncols=2)
    else:
        style.legend_below(figure, axes[0, 0], 6, 9)
    return style.title(figure, heading)


@style.arrays
def band_grid(
    rows: Mapping[str, Mapping[str, Band]],
    x: style.Values,
    y: style.Values,
    gaps: Sequence[tuple[float, float]] = (),
    heading: str = "Do the error bars grow where there are no data?",
) -> Figure:
    """Draw :func:`regression_bands` in a grid with a row for each kind of predictive and a column for each posterior.

    Args:
        rows: Bands by posterior, by the name of the row.
        x: Training inputs (N,).
        y: Training targets (N,).
        gaps: Intervals without data, marked in each panel.
        heading: Heading of the figure.

    Raises:
        ValueError: there is no band.
    """
    if not rows or not all(rows.values()):
        raise ValueError("no predictive band to draw: pass at least one row of them.")
    figure, axes = style.panels(len(rows), max(map(len, rows.values())), 3.9, 2.3, sharex=True, sharey=True)
    colours = style.tints(name for bands in rows.values() for name in bands)
    for number, (line, (row, bands)) in enumerate(zip(axes, rows.items(), strict=True)):
        style.label(line[0], y=row)
        for ax, (name, shown) in zip(line, bands.items(), strict=False):
            band(ax, shown, colours[name], (x, y), None, gaps)
            style.label(ax, name if number == 0 else None)
    for ax in axes[-1]:
        style.label(ax, x="input x")
    scale_to(axes[0, 0], y, 0.8)
    style.legend_below(figure, axes[0, 0], 4)
    return style.title(figure, heading)


@style.arrays
def function_draws(
    shown: Mapping[str, Draws],
    x: style.Values,
    y: style.Values,
    heading: str = "Functions drawn from one posterior, in two ways",
    limits: Sequence[float] | None = None,
) -> Figure:
    """Draw sampled functions (thin), their mean (thick) and the mode (dashed), on axes scaled to the data.

    Args:
        shown: The draws by name of the panel.
        x: Training inputs (N,).
        y: Training targets (N,).
        heading: Heading of the figure.
        limits: Ends of the vertical axis; by default the range of the targets, extended by half of it on either side.

    Raises:
        ValueError: there are no draws.
    """
    if not shown:
        raise ValueError("no draws to show: pass at least one set, by its name.")
    figure, axes = style.panels(1, len(shown), 4.8, 3.5, sharex=True, sharey=True)
    for ax, (name, drawn) in zip(axes[0], shown.items(), strict=True):
        for number, function in enumerate(drawn.draws):
            words = "_" if number else "draws"
            ax.plot(drawn.x, function, color=style.GREY, linewidth=0.6, alpha=0.6, label=words)
        ax.plot(drawn.x, drawn.mean, color=style.BLUE, linewidth=2.2, label="mean of the draws")
        ax.plot(drawn.x, drawn.mode, "--", color=style.ORANGE, linewidth=1.8, label="network at the mode")
        ax.plot(x, y, ".", color=style.INK, markersize=4, label="data")
        ax.set_xlim(drawn.x[0], drawn.x[-1])
        scale_to(ax, y, 0.5)
        if limits is not None:
            ax.set_ylim(*limits)
        style.label(ax, f"{name}: {drawn.note}" if drawn.note else name, "input x")
    style.label(axes[0, 0], y="output y")
    style.legend_below(figure, axes[0, 0], 4)
    return style.title(figure, heading)
