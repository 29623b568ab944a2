"""Figures of the variational autoencoders: curves of training, posteriors of codes, rate and distortion."""

from collections.abc import Mapping, Sequence
from itertools import cycle
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
_REFERENCES: tuple[Any, ...] = ((0, (1, 1.5)), (0, (7, 2, 1, 2)), (0, (4, 2, 1, 1, 1, 2)))


@style.arrays
def curves(
    groups: Mapping[str, Lines],
    heading: str,
    training: Mapping[str, Lines] | None = None,
    references: Mapping[str, Mapping[str, float]] | None = None,
    lowest: float | None = None,
    shared: bool = True,
    names: tuple[str, str] = ("images seen in training", "bound on log p(x), nats per image"),
    places: Sequence[int] | None = None,
) -> Figure:
    """Held-out data are solid, training data dashed in the same colour.

    Args:
        groups: Images seen (P,) and values (P,) on held-out data by panel and line.
        heading: Heading of the figure.
        training: The same on training data; panels and lines may be missing.
        references: Values to compare with by panel and name, horizontal lines.
        lowest: Lower end of the axis of values; by default the lowest value in the later half of any line, so that a
            poor start does not flatten the rest.
        shared: Use one axis of values for all panels; else one for each, where they differ by much.
        names: Labels of both axes.
        places: Ticks of the horizontal axis, which is then linear; by default it is logarithmic.

    Raises:
        ValueError: there is no panel or one without a line, a line without a value that can be drawn, or a panel of
            ``training`` or ``references`` that is not one of ``groups``.
    """
    training, references = training or {}, references or {}
    unknown = sorted((training.keys() | references.keys()) - groups.keys())
    if not groups or not all(groups.values()) or unknown:
        raise ValueError(
            f"curves of the panels {list(groups)}, and {unknown} besides: pass at least one line of held-out data for "
            "each panel, and training data and references by the same names."
        )
    colours = style.tints(line for panel in (*groups.values(), *training.values()) for line in panel)
    marks = dict.fromkeys(name for values in references.values() for name in values)
    dashes = dict(zip(marks, cycle(_REFERENCES), strict=False))
    # a lone panel leaves room for the heading and the legend
    figure, axes = style.wrapped(len(groups), 3, *((4.1, 3.3) if len(groups) > 1 else (6.4, 4.4)))
    ends = []
    for ax, (name, group) in zip(axes.flat, groups.items(), strict=False):
        own = [(value, value) for value in references.get(name, {}).values()]
        for mark, value in references.get(name, {}).items():
            ax.axhline(value, color=style.GREY, linewidth=1.4, linestyle=dashes[mark])
        for part, dash in zip((group, training.get(name, {})), _KINDS.values(), strict=True):
            own += [_ends(line, np.asarray(x, float), np.asarray(y, float)) for line, (x, y) in part.items()]
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
        low, high = min(lows) if lowest is None else lowest, max(highs)
        room = 0.05 * ((high - low) or 1.0)
        ax.set_ylim(low - room if lowest is None else low, high + room)
    style.label_outer(axes, *names, len(groups))
    handles = [Line2D([], [], color=tint, label=line) for line, tint in colours.items()]
    handles += [Line2D([], [], color=style.INK, linestyle=d, label=n) for n, d in _KINDS.items() if training]
    handles += [Line2D([], [], color=style.GREY, linestyle=dash, label=name) for name, dash in dashes.items()]
    style.legend_below(figure, handles, fontsize=9)
    style.title(figure, heading)
    return figure


def _ends(line: str, places: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """The lowest value in the later half of a line, as a logarithmic axis shows it, and the highest of all."""
    if places.shape != values.shape or not (shown := (places > 0) & np.isfinite(values)).any():
        raise ValueError(
            f"the line {line!r} has places {places.shape} and values {values.shape}: give as many of both, at least "
            "one of them finite and at a place above 0."
        )
    late = shown & (places >= np.sqrt(places[shown].min() * places[shown].max()))
    return float(values[late].min()), float(values[shown].max())


def posteriors(shown: Mapping[str, Mapping[str, np.ndarray]], reach: float, heading: str) -> Figure:
    """Densities of two codes, each in its own scale, from zero (white) to its largest value.

    Args:
        shown: Mass (G, G) of cells of a square around zero by row and column, the first coordinate first.
        reach: Half the side of the square.
        heading: Heading of the figure.

    Raises:
        ValueError: there is no map.
    """
    if not shown or not all(shown.values()):
        raise ValueError("no densities to draw: pass at least one map for each row.")
    columns = sorted(dict.fromkeys(name for by in shown.values() for name in by), key=lambda name: name != "exact")
    figure, axes = style.panels(len(shown), len(columns), 2.1, 2.2, sharex=True, sharey=True)
    for row, (line, (model, by)) in enumerate(zip(axes, shown.items(), strict=True)):
        for ax, name in zip(line, columns, strict=True):
            ax.grid(False)
            ax.set_visible(name in by)
            if name in by:
                ends = (-reach, reach, -reach, reach)
                mass = np.asarray(by[name]).T
                ax.imshow(mass, cmap="Blues", origin="lower", extent=ends, interpolation="nearest")
            if row == 0:
                ax.set_title(name, fontsize=10, color=style.INK)
            style.label(ax, x="first code" if row == len(shown) - 1 else None)
        style.label(line[0], y=f"{model}\nsecond code")
    axes[0, 0].set(xlim=(-SHOWN, SHOWN), ylim=(-SHOWN, SHOWN), xticks=[-2, 0, 2], yticks=[-2, 0, 2])
    style.title(figure, heading)
    return figure


@style.arrays
def rate_distortion(
    shown: Lines,
    heading: str,
    continuous: Mapping[str, float] | None = None,
    names: tuple[str, str] = ("bits per image", "squared error per image"),
) -> Figure:
    """One line a method, beside the error of its code before it is quantised. Lower and further left is better.

    Args:
        shown: Bits (P,) and distortions (P,) by method.
        heading: Heading of the figure.
        continuous: Distortion of codes that are not quantised by method, a dashed line.
        names: Labels of both axes.

    Raises:
        ValueError: there is no line, bits and distortions that are not as many, or a continuous code of no line.
    """
    continuous = continuous or {}
    if not shown or any(len(bits) != len(errors) for bits, errors in shown.values()) or set(continuous) - set(shown):
        lengths = ", ".join(f"{name!r} {len(bits)} and {len(errors)}" for name, (bits, errors) in shown.items())
        raise ValueError(
            f"bits and as many distortions of each method are needed, but there are: {lengths or 'none'}; continuous "
            f"codes: {list(continuous)}."
        )
    colours = style.tints(shown)
    figure, axes = style.panels(1, 1, 6.4, 4.4)
    ax = axes[0, 0]
    plots.lines(ax, shown, colours, markers=style.MARKERS, markersize=5)
    for name, value in continuous.items():
        ax.axhline(value, color=colours[name], linewidth=1.1, linestyle="--")
    handles, _ = ax.get_legend_handles_labels()
    if continuous:
        handles.append(Line2D([], [], color=style.GREY, linestyle="--", label="code not quantised"))
    style.legend(ax, handles=handles, fontsize=9)
    ax.set_ylim(bottom=0)
    style.label(ax, None, *names)
    style.title(figure, heading)
    return figure
