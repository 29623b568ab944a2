"""What ways to predict add to MAP, set by set."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from osculate.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, YELLOW, panels, title

_TINTS = (ORANGE, YELLOW, PURPLE, BLUE, GREEN, INK, GREY)
_MARKERS = "^v<os*D"

#: By way to predict and set: a mean difference, and its standard error.
Differences = Mapping[str, Mapping[str, tuple[float, float]]]


def against_map(groups: Mapping[str, Differences], heading: str) -> Figure:
    """One panel a group: of each way to predict and each set, the NLL less that of MAP.

    Args:
        groups: by name, such as a network's depth.
        heading: the figure's sentence.

    Raises:
        ValueError: there is nothing to draw.
    """
    if not any(by_set for ways in groups.values() for by_set in ways.values()):
        raise ValueError("no difference to draw: pass at least one way to predict with one set.")
    sets = list(dict.fromkeys(name for ways in groups.values() for by_set in ways.values() for name in by_set))
    figure, axes = panels(1, len(groups), 5.2, 1.4 + 0.42 * len(sets), sharey=True)
    for ax, (name, ways) in zip(axes.flat, groups.items(), strict=True):
        _panel(ax, ways, sets)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ax.set_xlabel(
            "test NLL less that of MAP, nats\n(left of the line is better; bars: one standard error)", fontsize=9
        )
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    title(figure, heading)
    return figure


def _panel(ax: Axes, ways: Differences, sets: list[str]) -> None:
    ax.axvline(0, color=GREY, linewidth=1)
    step = 0.7 / max(1, len(ways) - 1)
    for number, (way, by_set) in enumerate(ways.items()):
        places = [sets.index(name) - 0.35 + step * number for name in by_set]
        values, errors = [v for v, _ in by_set.values()], [e for _, e in by_set.values()]
        tint, marker = _TINTS[number % len(_TINTS)], _MARKERS[number % len(_MARKERS)]
        style: dict[str, Any] = {"color": tint, "marker": marker, "markersize": 5, "elinewidth": 0.8, "linestyle": ""}
        ax.errorbar(values, places, xerr=errors, label=way, **style)
    ax.set_xscale("symlog", linthresh=0.1)
    ax.xaxis.set_major_locator(FixedLocator([-1, -0.3, -0.1, 0, 0.1, 0.3, 1, 3]))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_yticks(range(len(sets)), [name.replace("_", " ") for name in sets])
    ax.set_ylim(len(sets) - 0.5, -0.5)
