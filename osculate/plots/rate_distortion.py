"""What fewer bits cost: the error of an image that is kept as a code, against the size of the code."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from osculate.plots.arrays import Values, arrays
from osculate.plots.style import GREY, MARKERS, panels, tints, title


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
