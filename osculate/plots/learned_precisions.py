"""How prior precisions are learned: the evidence and the precisions by epoch, and what a grid would have given."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from osculate.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, YELLOW, panels, title

_LAYERS = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, INK)
_STYLES = ("-", "--", ":", "-.")


def learned_precisions(
    courses: Mapping[str, Mapping[str, Any]], grid: Sequence[Mapping[str, float]], heading: str
) -> Figure:
    """Three panels: log evidence by epoch, precisions of the weights by epoch, test NLL against fixed precisions.

    Args:
        courses: by name, ``initial`` precision, ``epochs``, ``log_evidence`` and ``precisions`` by parameter (each a
            list over epochs), and the ``test`` NLL. Those that are named by their initial precision are drawn in the
            panel of precisions.
        grid: points with ``precision``, ``validation`` and ``test`` NLL.
        heading: the figure's sentence.

    Raises:
        ValueError: there is no course, or no grid.
    """
    if not courses or not grid:
        raise ValueError("nothing to draw: pass at least one course and one point of a grid.")
    figure, axes = panels(1, 3, 4.6, 4.2)
    styles = {name: _STYLES[number % len(_STYLES)] for number, name in enumerate(courses)}
    plain = {name: course for name, course in courses.items() if name == f"{course['initial']:g}"}
    _evidence(axes[0, 0], courses, plain)
    _precisions(axes[0, 1], plain, styles)
    _against_grid(axes[0, 2], plain, grid)
    title(figure, heading)
    return figure


def _label(name: str, course: Mapping[str, Any]) -> str:
    start = f"{course['initial']:g}"
    return f"from {start}" if name == start else f"from {start}, {name}"


def _evidence(ax: Axes, courses: Mapping[str, Mapping[str, Any]], plain: Mapping[str, Any]) -> None:
    tints = dict(zip([name for name in courses if name in plain], (BLUE, GREEN, PURPLE), strict=False))
    others = iter((ORANGE, YELLOW, GREY))
    for number, (name, course) in enumerate(courses.items()):
        tint = tints.get(name) or next(others, INK)
        style = _STYLES[number % len(_STYLES)]
        ax.plot(course["epochs"], course["log_evidence"], style, color=tint, linewidth=1.6, label=_label(name, course))
    ax.set_title("Log evidence, nats per image", fontsize=10, color=INK, loc="left")
    ax.set_xlabel("epoch", fontsize=9)
    ax.legend(fontsize=8, frameon=False, title="initial precision", title_fontsize=8)


def _precisions(ax: Axes, plain: Mapping[str, Mapping[str, Any]], styles: Mapping[str, Any]) -> None:
    names: list[str] = []
    for name, course in plain.items():
        weights = [label for label in course["precisions"] if label.endswith("weight")] or list(course["precisions"])
        names = weights[: len(_LAYERS)]
        for label, tint in zip(names, _LAYERS, strict=False):
            values = [course["initial"], *course["precisions"][label]]
            ax.plot([0, *course["epochs"]], values, styles[name], color=tint, linewidth=1.6)
    ax.set(yscale="log")
    ax.set_title("Precision of each layer's weights", fontsize=10, color=INK, loc="left")
    ax.set_xlabel("epoch (0: as given)", fontsize=9)
    handles = [Line2D([], [], color=tint, label=label) for label, tint in zip(names, _LAYERS, strict=False)]
    handles += [Line2D([], [], color=GREY, linestyle=styles[name], label=f"from {name}") for name in plain]
    ax.legend(handles=handles, fontsize=8, frameon=False, ncols=2)


def _against_grid(ax: Axes, plain: Mapping[str, Mapping[str, Any]], grid: Sequence[Mapping[str, float]]) -> None:
    precisions = [point["precision"] for point in grid]
    ax.plot(
        precisions, [point["test"] for point in grid], "o-", color=ORANGE, markersize=4.5, label="one fixed precision"
    )
    chosen = min(grid, key=lambda point: point["validation"])
    ax.plot(
        [chosen["precision"]],
        [chosen["test"]],
        "o",
        color=INK,
        markersize=9,
        fillstyle="none",
        label="… chosen on validation",
    )
    for number, course in enumerate(plain.values()):
        label = "learned, one for each tensor" if not number else None
        ax.axhline(course["test"], color=BLUE, linewidth=1.4, linestyle=_STYLES[number % len(_STYLES)], label=label)
    ax.set(xscale="log", yscale="log")
    ax.set_title("Test NLL of the trained weights, nats", fontsize=10, color=INK, loc="left")
    ax.set_xlabel("fixed prior precision", fontsize=9)
    ax.legend(fontsize=8, frameon=False)
