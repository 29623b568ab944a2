"""How accuracy grows with the number of labelled images."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from osculate.plots.arrays import Values, arrays
from osculate.plots.style import GREY, MARKERS, panels, tints, title

#: How far apart the points of two methods stand, as a factor, so that their bars do not cover one another.
_STEP = 1.03


@arrays
def accuracy_against_labels(
    labels: Sequence[int],
    curves: Mapping[str, tuple[Values, Values]],
    heading: str,
    chance: float | None = None,
) -> Figure:
    """One curve a method, on a logarithmic axis of labels; bars are one standard error.

    Args:
        labels: labelled images of each class (L,).
        curves: by method, mean accuracies (L,) and their standard errors (L,), NaN where there is none.
        heading: the figure's sentence.
        chance: the accuracy of guessing, a dashed line.

    Raises:
        ValueError: there is no curve, or one of another length.
    """
    if not curves or any(len(values) != len(labels) for pair in curves.values() for values in pair):
        lengths = ", ".join(f"{name!r} {len(mean)}" for name, (mean, _) in curves.items()) or "none"
        raise ValueError(f"curves of {len(labels)} accuracies and errors are needed, but there are: {lengths}.")
    figure, axes = panels(1, 1, 7.4, 4.0)
    ax = axes[0, 0]
    if chance is not None:
        ax.axhline(chance, color=GREY, linestyle="--", linewidth=1)
        ax.annotate("chance", (labels[-1], chance), (0, 3), "data", "offset points", fontsize=8, color=GREY, ha="right")
    colours = tints(curves)
    for index, (name, (mean, error)) in enumerate(curves.items()):
        style: dict[str, Any] = {"color": colours[name], "marker": MARKERS[index % len(MARKERS)], "markersize": 5}
        places = [number * _STEP ** (index - (len(curves) - 1) / 2) for number in labels]
        ax.errorbar(places, mean, yerr=error, label=name, linewidth=1.4, capsize=2, elinewidth=1, **style)
    ax.set_xscale("log")
    ax.set_xticks(list(labels), labels=[str(number) for number in labels])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_xlabel("labelled images of each class", fontsize=9)
    ax.set_ylabel("test accuracy (bars: one standard error)", fontsize=9)
    ax.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    title(figure, heading)
    return figure
