"""Figures of a posterior from the state of Adam: error bars of a toy, curvatures of weights."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from osculate import plots
from osculate.plots import style

#: A mean with its standard error.
Estimate = tuple[float, float]
#: Curvatures that are more orders of magnitude below the largest are left out.
ORDERS = 8.0


def curvatures_and_scores(
    pairs: Mapping[str, tuple[np.ndarray, np.ndarray]],
    scores: Mapping[str, Mapping[str, Estimate]],
    names: tuple[str, str],
    heading: str,
    prior: float | None = None,
) -> Figure:
    """One column a set: a dot a weight on logarithmic axes with the diagonal, and below a dot a way to predict.

    Args:
        pairs: Two curvatures of each weight (P,) by set.
        scores: Mean and standard error of the log likelihood by set and way; higher is better.
        names: Names of the two curvatures.
        heading: Heading of the figure.
        prior: Prior precision, below which a curvature hardly matters; dotted.

    Raises:
        ValueError: there is no set.
    """
    if not pairs:
        raise ValueError("no curvatures to draw: pass those of at least one set, by its name.")
    figure, axes = style.panels(2, len(pairs), 3.3, 3.1)
    for (above, below), (name, (one, other)) in zip(axes.T, pairs.items(), strict=True):
        top = max(one.max(), other.max())
        known = (one > top * 10**-ORDERS) & (other > top * 10**-ORDERS)
        low = min(one[known].min(), other[known].min()) if known.any() else top / 10
        above.plot([low, top], [low, top], "-", color=style.GREY, linewidth=1, label="equal")
        above.plot(one[known], other[known], ".", color=style.BLUE, markersize=3, alpha=0.6, label="a weight")
        if prior is not None:
            above.axhline(prior, linestyle=":", color=style.INK, linewidth=1, label="prior precision")
            above.axvline(prior, linestyle=":", color=style.INK, linewidth=1)
        above.set(xscale="log", yscale="log")
        style.legend(above, loc="lower right")
        style.label(above, name, names[0])
        ways = scores[name]
        values, errors = {way: [m] for way, (m, _) in ways.items()}, {way: error for way, (_, error) in ways.items()}
        plots.dots(below, values, list(ways), _colours(list(ways)), errors)
        below.xaxis.set_major_locator(MaxNLocator(4))
        style.label(below, x="test log likelihood, nats per point")
    style.label(axes[0, 0], y=names[1])
    for ax in axes[1, 1:]:
        ax.set_yticklabels([])
    style.title(figure, heading)
    return figure


def _colours(ways: Sequence[str]) -> dict[str, str]:
    """Black for ensembles, blue for all ways from the state of Adam."""
    tints = (style.ORANGE, style.PURPLE, style.GREEN, style.BLUE)
    return {way: style.INK if "ensemble" in way else tints[min(n, 3)] for n, way in enumerate(ways)}
