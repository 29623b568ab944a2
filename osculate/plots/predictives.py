"""Sampled networks beside the linearised one: how both depend on the prior, and what they are worth on test data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from osculate.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, YELLOW, panels, title

_TINTS = (ORANGE, PURPLE, YELLOW, BLUE, GREEN)
_MARKERS = "so^Dv"


@dataclass(frozen=True)
class Predictives:
    """What is shown of one data set.

    Args:
        precisions: candidates of the prior precision (G,).
        curves: validation NLL by way to predict: of each candidate, or one number that does not depend on it.
        chosen: the precision that was chosen, by way to predict.
        points: test NLL and AUROC by way to predict; the colours of the ways are in this order.
        outside: what is to be told from the test data, in words.
    """

    precisions: Sequence[float]
    curves: Mapping[str, Sequence[float]]
    chosen: Mapping[str, float]
    points: Mapping[str, tuple[float, float]]
    outside: str


def predictives(sets: Mapping[str, Predictives], heading: str) -> Figure:
    """One row a data set: validation NLL against the prior precision, and test NLL against OOD AUROC.

    Args:
        sets: by name.
        heading: the figure's sentence.

    Raises:
        ValueError: there is no data set.
    """
    if not sets:
        raise ValueError("no data set to draw: pass at least one by name.")
    figure, axes = panels(len(sets), 2, 5.2, 3.5)
    for (name, shown), (left, right) in zip(sets.items(), axes, strict=True):
        style = {
            way: {"color": _TINTS[n % len(_TINTS)], "marker": _MARKERS[n % len(_MARKERS)], "label": way}
            for n, way in enumerate(shown.points)
        }
        _curves(left, shown, style)
        _points(right, shown, style)
        left.set_title(f"{name}: choice of the precision", fontsize=10, color=INK, loc="left")
        right.set_title(f"{name}: test images, and {shown.outside} outside", fontsize=10, color=INK, loc="left")
    handles, labels = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    title(figure, heading)
    return figure


def _curves(ax: Axes, shown: Predictives, style: Mapping[str, dict]) -> None:
    for way, values in shown.curves.items():
        plain = {key: value for key, value in style[way].items() if key == "color"}
        if len(values) == 1:
            ax.axhline(values[0], linestyle="--", linewidth=1.2, **plain)
            continue
        ax.plot(shown.precisions, values, markersize=4, linewidth=1.5, **style[way])
        place = list(shown.precisions).index(min(shown.precisions, key=lambda p: abs(p - shown.chosen[way])))
        ax.plot(shown.precisions[place], values[place], "o", markersize=12, fillstyle="none", **plain)
    ax.set(xscale="log", yscale="log")
    ax.set_xlabel("prior precision (a ring marks the one that validation chooses)", fontsize=9)
    ax.set_ylabel("validation NLL, nats", fontsize=9)


def _points(ax: Axes, shown: Predictives, style: Mapping[str, dict]) -> None:
    for way, (nll, auroc) in shown.points.items():
        ax.plot(nll, auroc, linestyle="", markersize=8, **style[way])
    ax.set_xscale("log")
    ax.annotate("better", (0.04, 0.96), xycoords="axes fraction", va="top", fontsize=9, color=GREY, style="italic")
    ax.margins(0.15)
    ax.set_xlabel("test NLL, nats (towards the left is better)", fontsize=9)
    ax.set_ylabel("OOD AUROC", fontsize=9)
