"""Error bars of many posteriors on one curve: a grid of panels, on the same axes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from osculate.plots.style import BLUE, GREY, INK, panels, title

#: Share of the height of the true curve that is left above and below it.
ROOM = 0.12


@dataclass(frozen=True)
class Shades:
    """A function along a line.

    Args:
        mean: of f (G,).
        sd: of f (G,).
        note: a few words under the title of the panel.
    """

    mean: Sequence[float]
    sd: Sequence[float]
    note: str = ""


def shades(
    shown: Mapping[str, Shades],
    grid: Sequence[float],
    points: tuple[Sequence[float], Sequence[float]],
    truth: Sequence[float],
    heading: str,
    columns: int = 5,
) -> Figure:
    """Mean, and one, two and three standard deviations, scaled to the true curve: the rest is off scale.

    Args:
        shown: a function by name of the panel.
        grid: inputs (G,), ascending.
        points: training inputs and targets, crosses.
        truth: the function behind the data (G,), dashed.
        heading: the figure's sentence.
        columns: panels in a row.

    Raises:
        ValueError: there is no panel.
    """
    if not shown:
        raise ValueError("no panel to draw: pass at least one function, by its name.")
    columns = min(columns, len(shown))
    figure, axes = panels(-(-len(shown) // columns), columns, 3.0, 3.0, sharex=True, sharey=True)
    x, curve = np.asarray(grid), np.asarray(truth)
    for ax, (name, each) in zip(axes.flat, shown.items(), strict=False):
        _panel(ax, x, each)
        ax.plot(x, curve, "--", color=GREY, linewidth=1.1, label="true function")
        ax.plot(*points, "x", color=INK, markersize=4, markeredgewidth=1, label="data")
        ax.set_title(f"{name}\n{each.note}" if each.note else name, fontsize=9.5, color=INK, loc="left")
    for ax in axes.flat[len(shown) :]:
        ax.set_visible(False)
    room = ROOM * np.ptp(curve)
    axes[0, 0].set(xlim=(x[0], x[-1]), ylim=(curve.min() - room, curve.max() + room))
    for ax in axes[-1]:
        ax.set_xlabel("input x", fontsize=9)
    for ax in axes[:, 0]:
        ax.set_ylabel("output y", fontsize=9)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=9)
    title(figure, heading)
    return figure


def _panel(ax: Axes, x: np.ndarray, each: Shades) -> None:
    mean, sd = np.asarray(each.mean), np.asarray(each.sd)
    for width, alpha in ((3, 0.14), (2, 0.2), (1, 0.3)):
        label = f"± {width} sd"
        ax.fill_between(x, mean - width * sd, mean + width * sd, color=BLUE, alpha=alpha, linewidth=0, label=label)
    ax.plot(x, mean, color=BLUE, linewidth=1.6, label="mean")
