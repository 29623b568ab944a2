"""Figures of a posterior from the state of Adam: error bars of a toy, curvatures of weights."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from osculate.plots.regression import Band
from osculate.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, panels, title

#: A mean with its standard error.
Estimate = tuple[float, float]
#: What lies so many orders of magnitude below the largest is left out.
CURVATURES_ORDERS = 8.0
_CURVATURES_TINTS = (ORANGE, PURPLE, GREEN, BLUE)


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
        _curvatures_scatter(above, one, other, prior)
        above.set_title(name, fontsize=10, color=INK, loc="left")
        above.set_xlabel(axes_names[0], fontsize=9)
        _curvatures_dots(below, scores[name])
    axes[0, 0].set_ylabel(axes_names[1], fontsize=9)
    for ax in axes[1, 1:]:
        ax.set_yticklabels([])
    title(figure, heading)
    return figure


def _curvatures_scatter(ax: Axes, one: np.ndarray, other: np.ndarray, prior: float | None) -> None:
    top = max(one.max(), other.max())
    known = (one > top * 10**-CURVATURES_ORDERS) & (other > top * 10**-CURVATURES_ORDERS)
    low = min(one[known].min(), other[known].min()) if known.any() else top / 10
    ax.plot([low, top], [low, top], "-", color=GREY, linewidth=1, label="equal")
    ax.plot(one[known], other[known], ".", color=BLUE, markersize=3, alpha=0.6, label="a weight")
    if prior is not None:
        ax.axhline(prior, linestyle=":", color=INK, linewidth=1, label="prior precision")
        ax.axvline(prior, linestyle=":", color=INK, linewidth=1)
    ax.set(xscale="log", yscale="log")
    ax.legend(fontsize=8, frameon=False, loc="lower right")


def _curvatures_dots(ax: Axes, ways: Mapping[str, Estimate]) -> None:
    for height, (way, (mean, error)) in enumerate(ways.items()):
        tint = _CURVATURES_TINTS[min(height, len(_CURVATURES_TINTS) - 1)] if "ensemble" not in way else INK
        ax.errorbar(mean, height, xerr=error, fmt="o", color=tint, markersize=5, linewidth=1.4)
    ax.set_yticks(range(len(ways)), list(ways), fontsize=8)
    ax.set_ylim(len(ways) - 0.5, -0.5)
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.set_xlabel("test log likelihood, nats per point", fontsize=9)


#: Share of the height of the true curve that is left above and below it.
SHADES_ROOM = 0.12


def shades(
    shown: Mapping[str, Band],
    points: tuple[Sequence[float], Sequence[float]],
    truth: Sequence[float],
    heading: str,
    columns: int = 5,
) -> Figure:
    """Mean, and one, two and three standard deviations, scaled to the true curve: the rest is off scale.

    Args:
        shown: a function by name of the panel.
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
    x, curve = np.asarray(next(iter(shown.values())).x), np.asarray(truth)
    for ax, (name, each) in zip(axes.flat, shown.items(), strict=False):
        _shades_panel(ax, x, each)
        ax.plot(x, curve, "--", color=GREY, linewidth=1.1, label="true function")
        ax.plot(*points, "x", color=INK, markersize=4, markeredgewidth=1, label="data")
        ax.set_title(f"{name}\n{each.note}" if each.note else name, fontsize=9.5, color=INK, loc="left")
    for ax in axes.flat[len(shown) :]:
        ax.set_visible(False)
    room = SHADES_ROOM * np.ptp(curve)
    axes[0, 0].set(xlim=(x[0], x[-1]), ylim=(curve.min() - room, curve.max() + room))
    for ax in axes[-1]:
        ax.set_xlabel("input x", fontsize=9)
    for ax in axes[:, 0]:
        ax.set_ylabel("output y", fontsize=9)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=9)
    title(figure, heading)
    return figure


def _shades_panel(ax: Axes, x: np.ndarray, each: Band) -> None:
    mean, sd = np.asarray(each.mean), np.asarray(each.sd)
    for width, alpha in ((3, 0.14), (2, 0.2), (1, 0.3)):
        label = f"± {width} sd"
        ax.fill_between(x, mean - width * sd, mean + width * sd, color=BLUE, alpha=alpha, linewidth=0, label=label)
    ax.plot(x, mean, color=BLUE, linewidth=1.6, label="mean")
