"""Two estimates of the curvature of each weight against each other, and what predictions with them are worth."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from osculate.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, panels, title

#: A mean with its standard error.
Estimate = tuple[float, float]
#: What lies so many orders of magnitude below the largest is left out.
ORDERS = 8.0
_TINTS = (ORANGE, PURPLE, GREEN, BLUE)


def curvatures_and_scores(
    pairs: Mapping[str, tuple[np.ndarray, np.ndarray]],
    scores: Mapping[str, Mapping[str, Estimate]],
    axes_names: tuple[str, str],
    heading: str,
    prior: float | None = None,
) -> Figure:
    """One column a set: a dot a weight on logarithmic axes with the diagonal, and below a dot a way to predict.

    Args:
        pairs: two curvatures of each weight (P,), by set.
        scores: log likelihood by set and way, mean and standard error; higher is better.
        axes_names: what the two curvatures are, in words.
        heading: the figure's sentence.
        prior: precision of the prior, below which a curvature hardly matters; dotted.

    Raises:
        ValueError: there is no set.
    """
    if not pairs:
        raise ValueError("no curvatures to draw: pass those of at least one set, by its name.")
    figure, axes = panels(2, len(pairs), 3.3, 3.1)
    for (above, below), (name, (one, other)) in zip(axes.T, pairs.items(), strict=True):
        _scatter(above, one, other, prior)
        above.set_title(name, fontsize=10, color=INK, loc="left")
        above.set_xlabel(axes_names[0], fontsize=9)
        _dots(below, scores[name])
    axes[0, 0].set_ylabel(axes_names[1], fontsize=9)
    for ax in axes[1, 1:]:
        ax.set_yticklabels([])
    title(figure, heading)
    return figure


def _scatter(ax: Axes, one: np.ndarray, other: np.ndarray, prior: float | None) -> None:
    top = max(one.max(), other.max())
    known = (one > top * 10**-ORDERS) & (other > top * 10**-ORDERS)
    low = min(one[known].min(), other[known].min()) if known.any() else top / 10
    ax.plot([low, top], [low, top], "-", color=GREY, linewidth=1, label="equal")
    ax.plot(one[known], other[known], ".", color=BLUE, markersize=3, alpha=0.6, label="a weight")
    if prior is not None:
        ax.axhline(prior, linestyle=":", color=INK, linewidth=1, label="prior precision")
        ax.axvline(prior, linestyle=":", color=INK, linewidth=1)
    ax.set(xscale="log", yscale="log")
    ax.legend(fontsize=8, frameon=False, loc="lower right")


def _dots(ax: Axes, ways: Mapping[str, Estimate]) -> None:
    for height, (way, (mean, error)) in enumerate(ways.items()):
        tint = _TINTS[min(height, len(_TINTS) - 1)] if "ensemble" not in way else INK
        ax.errorbar(mean, height, xerr=error, fmt="o", color=tint, markersize=5, linewidth=1.4)
    ax.set_yticks(range(len(ways)), list(ways), fontsize=8)
    ax.set_ylim(len(ways) - 0.5, -0.5)
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.set_xlabel("test log likelihood, nats per point", fontsize=9)
