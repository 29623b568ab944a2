"""Figures of the variational autoencoders: curves of training, posteriors of codes, rate and distortion."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from osculate.plots.arrays import Values, arrays
from osculate.plots.style import GREY, INK, MARKERS, panels, tints, title

#: Lines by name: where, and how much.
Lines = Mapping[str, tuple[Values, Values]]
#: How held-out and training data are drawn, and what they are compared with.
_CURVES_KINDS: tuple[Any, ...] = ("-", "--")
CURVES_KINDS = ("validation", "training")
_CURVES_REFERENCES: tuple[Any, ...] = ((0, (1, 1.5)), (0, (7, 2, 1, 2)), (0, (4, 2, 1, 1, 1, 2)))


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
    styles = dict(zip(marks, cycle(_CURVES_REFERENCES), strict=False))
    columns = min(3, len(groups))
    # a lone panel leaves room for the heading and the legend
    figure, axes = panels(-(-len(groups) // columns), columns, *((4.1, 3.3) if columns > 1 else (6.4, 4.4)))
    ends = []
    for ax, (name, group) in zip(axes.flat, groups.items(), strict=False):
        own = [(value, value) for value in references.get(name, {}).values()]
        for mark, value in references.get(name, {}).items():
            ax.axhline(value, color=GREY, linewidth=1.4, linestyle=styles[mark])
        for part, style in zip((group, training.get(name, {})), _CURVES_KINDS, strict=True):
            for line, (where, values) in part.items():
                own.append(_curves_ends(line, np.asarray(where, float), np.asarray(values, float)))
                dot = None if places is None else "o"
                ax.plot(where, values, color=colours[line], linewidth=1.4, linestyle=style, marker=dot, markersize=4)
        _curves_horizontal(ax, places)
        ax.tick_params(which="minor", color=GREY)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ends.append(own)
    for ax, own in zip(axes.flat, ends, strict=False):
        lows, highs = zip(*(sum(ends, []) if shared else own), strict=True)
        low, high = min(lows) if lowest is None else lowest, max(highs)
        room = 0.05 * ((high - low) or 1.0)
        ax.set_ylim(low - room if lowest is None else low, high + room)
    _curves_words(axes, len(groups), names)
    _curves_legend(figure, colours, styles, CURVES_KINDS if training else ())
    title(figure, heading)
    return figure


def _curves_horizontal(ax: Axes, places: Sequence[int] | None) -> None:
    if places is not None:
        ax.set_xticks(list(places))
        return
    ax.set_xscale("log")
    ax.xaxis.set_minor_formatter(NullFormatter())  # over less than two decades their labels would overlap


def _curves_ends(line: str, places: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """The lowest value in the later half of a line, as a logarithmic axis shows it, and the highest of all."""
    if places.shape != values.shape or not (shown := (places > 0) & np.isfinite(values)).any():
        raise ValueError(
            f"the line {line!r} has places {places.shape} and values {values.shape}: give as many of both, at least "
            "one of them finite and at a place above 0."
        )
    late = shown & (places >= np.sqrt(places[shown].min() * places[shown].max()))
    return float(values[late].min()), float(values[shown].max())


def _curves_words(axes: np.ndarray, number: int, names: tuple[str, str]) -> None:
    """Words at the outer axes; panels without a group are left out."""
    for ax in axes.flat[number:]:
        ax.set_visible(False)
    for ax in axes.flat[max(0, number - axes.shape[1]) : number]:
        ax.set_xlabel(names[0], fontsize=9)
    for ax in axes[:, 0]:
        ax.set_ylabel(names[1], fontsize=9)


def _curves_legend(figure: Figure, colours: Mapping[str, str], marks: Mapping[str, Any], kinds: Sequence[str]) -> None:
    styles = [(kind, INK, style) for kind, style in zip(kinds, _CURVES_KINDS, strict=False)]
    styles += [(name, GREY, style) for name, style in marks.items()]
    handles = [Line2D([], [], color=tint, label=line) for line, tint in colours.items()]
    handles += [Line2D([], [], color=tint, linestyle=style, label=name) for name, tint, style in styles]
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, int(figure.get_figwidth() / (0.7 + 0.085 * longest)))  # inches of a line and its words
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, fontsize=9, frameon=False, handlelength=2.8
    )


@arrays
def posteriors(shown: Mapping[str, Mapping[str, np.ndarray]], reach: float, heading: str) -> Figure:
    """Each map in its own scale, from nothing (white) to its largest value.

    Args:
        shown: by row and column, the mass (G, G) of cells of a square around zero, the first coordinate first.
        reach: half the side of the square.
        heading: the figure's sentence.

    Raises:
        ValueError: there is no map.
    """
    if not shown or not all(shown.values()):
        raise ValueError("no densities to draw: pass at least one map for each row.")
    columns = list(dict.fromkeys(name for by in shown.values() for name in by))
    columns.sort(key=lambda name: name != "exact")
    figure, axes = panels(len(shown), len(columns), 2.1, 2.2)
    for row, (line, (model, by)) in enumerate(zip(axes, shown.items(), strict=True)):
        for ax, name in zip(line, columns, strict=True):
            ax.grid(False)
            ax.set(xticks=[-2, 0, 2], yticks=[-2, 0, 2])
            if name not in by:
                ax.set_visible(False)
                continue
            ends = (-reach, reach, -reach, reach)
            ax.imshow(np.asarray(by[name]).T, cmap="Blues", origin="lower", extent=ends, interpolation="nearest")
            ax.set(xlim=(-3.2, 3.2), ylim=(-3.2, 3.2))
            if row == 0:
                ax.set_title(name, fontsize=10, color=INK)
            if row == len(shown) - 1:
                ax.set_xlabel("first code", fontsize=9)
        line[0].set_ylabel(f"{model}\nsecond code", fontsize=9)
    title(figure, heading)
    return figure


@arrays
def rate_distortion(
    lines: Mapping[str, tuple[Values, Values]],
    heading: str,
    continuous: Mapping[str, float] | None = None,
    names: tuple[str, str] = ("bits per image", "squared error per image"),
) -> Figure:
    """One line a method, beside the error of its code before it is quantised. Lower and further left is better.

    Args:
        lines: by method, bits (P,) and distortions (P,).
        heading: the figure's sentence.
        continuous: by method, the distortion of codes that are not quantised, a dashed line.
        names: the words of both axes.

    Raises:
        ValueError: there is no line, bits and distortions that are not as many, or a continuous code of no line.
    """
    continuous = continuous or {}
    if not lines or any(len(bits) != len(errors) for bits, errors in lines.values()) or set(continuous) - set(lines):
        lengths = ", ".join(f"{name!r} {len(bits)} and {len(errors)}" for name, (bits, errors) in lines.items())
        raise ValueError(
            f"bits and as many distortions of each method are needed, but there are: {lengths or 'none'}; continuous "
            f"codes: {list(continuous)}."
        )
    colours = tints(lines)
    figure, axes = panels(1, 1, 6.4, 4.4)
    ax = axes[0, 0]
    for index, (name, (bits, errors)) in enumerate(lines.items()):
        style: dict[str, Any] = {"color": colours[name], "marker": MARKERS[index % len(MARKERS)], "markersize": 5}
        ax.plot(bits, errors, label=name, linewidth=1.4, **style)
    for name, value in continuous.items():
        ax.axhline(value, color=colours[name], linewidth=1.1, linestyle="--")
    handles, _ = ax.get_legend_handles_labels()
    if continuous:
        handles.append(Line2D([], [], color=GREY, linestyle="--", label="code not quantised"))
    ax.legend(handles=handles, fontsize=9, frameon=False)
    ax.set_ylim(bottom=0)
    ax.set_xlabel(names[0], fontsize=9)
    ax.set_ylabel(names[1], fontsize=9)
    title(figure, heading)
    return figure
