"""A bound as training goes on, or something else against a number: one panel a setting."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from osculate.plots.arrays import Values, arrays
from osculate.plots.style import GREY, INK, panels, tints, title

#: Lines by name: where, and how much.
Lines = Mapping[str, tuple[Values, Values]]
#: How held-out and training data are drawn, and what they are compared with.
_KINDS: tuple[Any, ...] = ("-", "--")
KINDS = ("validation", "training")
_REFERENCES: tuple[Any, ...] = ((0, (1, 1.5)), (0, (7, 2, 1, 2)), (0, (4, 2, 1, 1, 1, 2)))


@arrays
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
    """Higher is better. Held-out data are solid, training data dashed in the same colour.

    Args:
        groups: by panel and line, images seen (P,) and values (P,) on held-out data.
        heading: the figure's sentence.
        training: the same on training data; panels and lines may be missing.
        references: by panel and name, values to compare with, horizontal lines.
        lowest: where the axis of values begins; by default at the lowest value in the later half of any line, so that a
            poor start does not flatten the rest.
        shared: one axis of values for all panels; else one for each, where they differ by much.
        names: the words of both axes.
        places: those that the horizontal axis names, which is then linear; by default it is logarithmic.

    Raises:
        ValueError: there is no panel or one without a line, a line without a value that can be drawn, or a panel of
            ``training`` or ``references`` that is not one of ``groups``.
    """
    training, references = training or {}, references or {}
    unknown = sorted({*training, *references} - set(groups))
    if unknown or not groups or not all(groups.values()):
        raise ValueError(
            f"curves of the panels {list(groups)}, and {unknown} besides: pass at least one line of held-out data for "
            "each panel, and training data and references by the same names."
        )
    colours = tints(line for panel in (*groups.values(), *training.values()) for line in panel)
    marks = dict.fromkeys(name for values in references.values() for name in values)
    styles = dict(zip(marks, cycle(_REFERENCES), strict=False))
    columns = min(3, len(groups))
    # a lone panel leaves room for the heading and the legend
    figure, axes = panels(-(-len(groups) // columns), columns, *((4.1, 3.3) if columns > 1 else (6.4, 4.4)))
    ends = []
    for ax, (name, group) in zip(axes.flat, groups.items(), strict=False):
        own = [(value, value) for value in references.get(name, {}).values()]
        for mark, value in references.get(name, {}).items():
            ax.axhline(value, color=GREY, linewidth=1.4, linestyle=styles[mark])
        for part, style in zip((group, training.get(name, {})), _KINDS, strict=True):
            for line, (where, values) in part.items():
                own.append(_ends(line, np.asarray(where, float), np.asarray(values, float)))
                dot = None if places is None else "o"
                ax.plot(where, values, color=colours[line], linewidth=1.4, linestyle=style, marker=dot, markersize=4)
        _horizontal(ax, places)
        ax.tick_params(which="minor", color=GREY)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ends.append(own)
    for ax, own in zip(axes.flat, ends, strict=False):
        lows, highs = zip(*(sum(ends, []) if shared else own), strict=True)
        low, high = min(lows) if lowest is None else lowest, max(highs)
        room = 0.05 * ((high - low) or 1.0)
        ax.set_ylim(low - room if lowest is None else low, high + room)
    _words(axes, len(groups), names)
    _legend(figure, colours, styles, KINDS if training else ())
    title(figure, heading)
    return figure


def _horizontal(ax: Axes, places: Sequence[int] | None) -> None:
    if places is not None:
        ax.set_xticks(list(places))
        return
    ax.set_xscale("log")
    ax.xaxis.set_minor_formatter(NullFormatter())  # over less than two decades their labels would overlap


def _ends(line: str, places: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """The lowest value in the later half of a line, as a logarithmic axis shows it, and the highest of all."""
    if places.shape != values.shape or not (shown := (places > 0) & np.isfinite(values)).any():
        raise ValueError(
            f"the line {line!r} has places {places.shape} and values {values.shape}: give as many of both, at least "
            "one of them finite and at a place above 0."
        )
    late = shown & (places >= np.sqrt(places[shown].min() * places[shown].max()))
    return float(values[late].min()), float(values[shown].max())


def _words(axes: np.ndarray, number: int, names: tuple[str, str]) -> None:
    """Words at the outer axes; panels without a group are left out."""
    for ax in axes.flat[number:]:
        ax.set_visible(False)
    for ax in axes.flat[max(0, number - axes.shape[1]) : number]:
        ax.set_xlabel(names[0], fontsize=9)
    for ax in axes[:, 0]:
        ax.set_ylabel(names[1], fontsize=9)


def _legend(figure: Figure, colours: Mapping[str, str], marks: Mapping[str, Any], kinds: Sequence[str]) -> None:
    styles = [(kind, INK, style) for kind, style in zip(kinds, _KINDS, strict=False)]
    styles += [(name, GREY, style) for name, style in marks.items()]
    handles = [Line2D([], [], color=tint, label=line) for line, tint in colours.items()]
    handles += [Line2D([], [], color=tint, linestyle=style, label=name) for name, tint, style in styles]
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, int(figure.get_figwidth() / (0.7 + 0.085 * longest)))  # inches of a line and its words
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, fontsize=9, frameon=False, handlelength=2.8
    )
