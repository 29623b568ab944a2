"""Functions drawn from a posterior, beside the network at its mode: do the draws stay near the data?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from osculate.plots.style import BLUE, GREY, INK, ORANGE, panels, title


@dataclass(frozen=True)
class Draws:
    """Functions along a line.

    Args:
        x: inputs (G,), ascending.
        draws: one function a row, (S, G).
        mean: of these and perhaps more draws (G,).
        mode: the network at its mode (G,).
        note: a few words under the title of the panel.
    """

    x: np.ndarray
    draws: np.ndarray
    mean: np.ndarray
    mode: np.ndarray
    note: str = ""


def function_draws(
    shown: Mapping[str, Draws],
    x: np.ndarray,
    y: np.ndarray,
    heading: str = "Functions drawn from one posterior, in two ways",
    limits: Sequence[float] | None = None,
) -> Figure:
    """Draws (thin), their mean (thick) and the mode (dashed), on axes scaled to the data: the rest is off scale.

    Args:
        shown: the draws by name of the panel.
        x: training inputs (N,).
        y: training targets (N,).
        heading: the figure's sentence.
        limits: of the vertical axis; by default the range of the targets with half of it on either side.

    Raises:
        ValueError: there are no draws.
    """
    if not shown:
        raise ValueError("no draws to show: pass at least one set, by its name.")
    figure, axes = panels(1, len(shown), 4.8, 3.5, sharex=True, sharey=True)
    low, high = float(np.min(y)), float(np.max(y))
    low, high = limits or (low - 0.5 * (high - low), high + 0.5 * (high - low))
    for ax, (name, drawn) in zip(axes[0], shown.items(), strict=True):
        _panel(ax, drawn)
        ax.plot(x, y, ".", color=INK, markersize=4, label="data")
        ax.set(xlim=(drawn.x[0], drawn.x[-1]), ylim=(low, high))
        ax.set_title(f"{name}: {drawn.note}" if drawn.note else name, fontsize=10, color=INK, loc="left")
        ax.set_xlabel("input x", fontsize=9)
    axes[0, 0].set_ylabel("output y", fontsize=9)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    title(figure, heading)
    return figure


def _panel(ax: Axes, drawn: Draws) -> None:
    for number, function in enumerate(drawn.draws):
        label = "draws" if number == 0 else None
        ax.plot(drawn.x, function, color=GREY, linewidth=0.6, alpha=0.6, label=label)
    ax.plot(drawn.x, drawn.mean, color=BLUE, linewidth=2.2, label="mean of the draws")
    ax.plot(drawn.x, drawn.mode, "--", color=ORANGE, linewidth=1.8, label="network at the mode")
