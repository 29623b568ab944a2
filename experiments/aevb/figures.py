"""Figures of the variational autoencoders: curves of training, posteriors of codes, rate and distortion."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from osculate import plots
from osculate.plots import style
from osculate.plots.style import Values

#: Places and values of lines by name.
Lines = Mapping[str, tuple[Values, Values]]
#: Half the side of the square of codes that is shown.
SHOWN = 3.2
_KINDS: dict[str, Any] = {"validation": "-", "training": "--"}


@style.arrays
def curves(
    groups: Mapping[str, Lines],
    heading: str,
    training: Mapping[str, Lines] | None = None,
    shared: bool = True,
    names: tuple[str, str] = ("images seen in training", "bound on log p(x), nats per image"),
    places: Sequence[int] | None = None,
) -> Figure:
    """Draw curves of training: held-out data solid, training data dashed in the same colour.

    The axis of values begins at the lowest value in the later half of any line, so that a poor start does not flatten
    the rest.

    Args:
        groups: Images seen (P,) and values (P,) on held-out data by panel and line.
        heading: Heading of the figure.
        training: The same on training data; panels and lines may be missing.
        shared: Use one axis of values for all panels; else one for each, where they differ by much.
        names: Labels of both axes.
        places: Ticks of the horizontal axis, which is then linear; by default it is logarithmic.
    """
    training = training or {}
    colours = style.tints(line for panel in (*groups.values(), *training.values()) for line in panel)
    # a lone panel leaves room for the heading and the legend
    figure, axes = style.wrapped(len(groups), 3, *((4.1, 3.3) if len(groups) > 1 else (6.4, 4.4)))
    ends = []
    for ax, (name, group) in zip(axes.flat, groups.items(), strict=False):
        own = []
        for part, dash in zip((group, training.get(name, {})), _KINDS.values(), strict=True):
            own += [_ends(np.asarray(x, float), np.asarray(y, float)) for x, y in part.values()]
            plots.lines(ax, part, colours, dash, markers=None if places is None else "o", markersize=4)
        if places is None:
            ax.set_xscale("log")
            ax.xaxis.set_minor_formatter(NullFormatter())  # over less than two decades their labels would overlap
        else:
            ax.set_xticks(list(places))
        ax.tick_params(which="minor", color=style.GREY)
        style.label(ax, name)
        ends.append(own)
    for ax, own in zip(axes.flat, ends, strict=False):
        lows, highs = zip(*(sum(ends, []) if shared else own), strict=True)
        room = 0.05 * ((max(highs) - min(lows)) or 1.0)
        ax.set_ylim(min(lows) - room, max(highs) + room)
    style.label_outer(axes, *names, len(groups))
    handles = [Line2D([], [], color=tint, label=line) for line, tint in colours.items()]
    handles += [Line2D([], [], color=style.INK, linestyle=d, label=n) for n, d in _KINDS.items() if training]
    style.legend_below(figure, handles, fontsize=9)
    return style.title(figure, heading)


def _ends(places: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """Return the lowest value in the later half of a line, as a logarithmic axis shows it, and the highest of all."""
    shown = places > 0
    late = shown & (places >= np.sqrt(places[shown].min() * places[shown].max()))
    return float(values[late].min()), float(values[shown].max())


def posteriors(shown: Mapping[str, Mapping[str, np.ndarray]], reach: float, heading: str) -> Figure:
    """Draw densities of two codes, each in its own scale, from zero (white) to its largest value.

    Args:
        shown: Mass (G, G) of cells of a square around zero by row and column, the first coordinate first.
        reach: Half the side of the square.
        heading: Heading of the figure.
    """
    columns = sorted(dict.fromkeys(name for by in shown.values() for name in by), key=lambda name: name != "exact")
    figure, axes = style.panels(len(shown), len(columns), 2.1, 2.2, sharex=True, sharey=True)
    for row, (line, (model, by)) in enumerate(zip(axes, shown.items(), strict=True)):
        for ax, name in zip(line, columns, strict=True):
            ax.grid(False)
            ax.set_visible(name in by)
            if name in by:
                ends = (-reach, reach, -reach, reach)
                mass = np.asarray(by[name]).T
                plots.cells(ax, mass, cmap=style.DENSITY, origin="lower", extent=ends)
            if row == 0:
                ax.set_title(name, fontsize=10, color=style.INK)
            style.label(ax, x="first code" if row == len(shown) - 1 else None)
        style.label(line[0], y=f"{model}\nsecond code")
    axes[0, 0].set(xlim=(-SHOWN, SHOWN), ylim=(-SHOWN, SHOWN), xticks=[-2, 0, 2], yticks=[-2, 0, 2])
    return style.title(figure, heading)


@style.arrays
def rate_distortion(shown: Lines, heading: str, continuous: Mapping[str, float]) -> Figure:
    """Draw a line per method, and the error of its codes before quantisation. Lower and further left is better.

    Args:
        shown: Bits (P,) and distortions (P,) by method.
        heading: Heading of the figure.
        continuous: Distortion of codes that are not quantised by method, a dashed line.
    """
    colours = style.tints(shown)
    figure, axes = style.panels(1, 1, 6.4, 4.4)
    ax = axes[0, 0]
    plots.lines(ax, shown, colours, markers=style.MARKERS, markersize=5)
    for name, value in continuous.items():
        ax.axhline(value, color=colours[name], linewidth=1.1, linestyle="--")
    handles, _ = ax.get_legend_handles_labels()
    handles.append(Line2D([], [], color=style.GREY, linestyle="--", label="code not quantised"))
    style.legend(ax, handles=handles, fontsize=9)
    ax.set_ylim(bottom=0)
    style.label(ax, None, "bits per image", "squared error per image")
    return style.title(figure, heading)
