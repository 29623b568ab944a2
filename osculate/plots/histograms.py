"""Entropies and other scores in and out of distribution: does the network know what it does not know?"""

from collections.abc import Mapping
from math import log

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from osculate.plots.arrays import arrays
from osculate.plots.style import GREY, INK, ORANGE, PURPLE, YELLOW, panels, title

_OUTSIDE = (ORANGE, PURPLE, YELLOW, INK)


@arrays
def entropy_histograms(
    inside: Mapping[str, np.ndarray],
    outside: Mapping[str, Mapping[str, np.ndarray]],
    classes: int,
    auroc: Mapping[str, Mapping[str, float]] | None = None,
) -> Figure:
    """Histograms of predictive entropy on test data and on foreign data, one row of axes for each method.

    Args:
        inside: entropies (N,) in nats of the test data, by name of the method.
        outside: for each method, entropies (M,) in nats by name of the foreign data.
        classes: number of classes C; entropy runs from 0 (certain) to log C (no idea).
        auroc: for each method and foreign data set, how well entropy tells it from the test data (0.5: not at all).

    Raises:
        ValueError: there is nothing to draw, or `inside` and `outside` name different methods.
    """
    _require_both(inside, outside)
    bins = np.linspace(0, log(classes), 31)
    figure = _histograms(inside, outside, dict.fromkeys(inside, bins), auroc or {}, sharex=True)
    _scale_words(figure.axes[-1], classes)
    title(figure, "How unsure are the predictions, on test data and on data of another kind?")
    return figure


@arrays
def score_histograms(
    inside: Mapping[str, np.ndarray],
    outside: Mapping[str, Mapping[str, np.ndarray]],
    auroc: Mapping[str, Mapping[str, float]] | None = None,
    words: Mapping[str, str] | None = None,
    heading: str = "Scores of test data and of data of another kind: higher means less familiar",
) -> Figure:
    """Histograms of any score, one row of axes for each score or method, each on an axis of its own.

    The axis runs over all but the extreme 1 % of the scores, which are counted at its ends; it is logarithmic where
    they span more than two decades.

    Args:
        inside: scores (N,) of the test data, by name of the score or of the method.
        outside: for each of them, scores (M,) by name of the foreign data.
        auroc: for each of them and foreign data set, how well it tells it from the test data (0.5: not at all).
        words: of the horizontal axis, for each of them.
        heading: the figure's sentence.

    Raises:
        ValueError: there is nothing to draw, `inside` and `outside` name different scores, a set is empty, or a score
            is not finite.
    """
    _require_both(inside, outside)
    bins = {label: _bins(label, inside[label], outside[label]) for label in inside}
    figure = _histograms(inside, outside, bins, auroc or {}, sharex=False)
    for ax, (label, edges) in zip(figure.axes, bins.items(), strict=True):
        ax.set_xscale("log" if _is_logarithmic(edges) else "linear")
        ax.set_xlim(edges[0], edges[-1])
        ax.set_xlabel((words or {}).get(label, ""), fontsize=9)
    title(figure, heading)
    return figure


def _require_both(inside: Mapping[str, np.ndarray], outside: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    if not inside or inside.keys() != outside.keys():
        raise ValueError(f"scores inside are of {sorted(inside)}, outside of {sorted(outside)}: give both for each.")


def _bins(label: str, inside: np.ndarray, outside: Mapping[str, np.ndarray]) -> np.ndarray:
    """Edges over nearly all of the scores of all sets."""
    for name, values in {"test data": inside, **outside}.items():
        if not len(values) or not np.isfinite(values).all():
            raise ValueError(f"the scores {label!r} of {name} are none or not finite: give each set finite scores.")
    ends = [np.quantile(values, (0.005, 0.995)) for values in (inside, *outside.values())]
    low, high = min(float(end[0]) for end in ends), max(float(end[1]) for end in ends)
    if low > 0 and high / low > 100:
        return np.geomspace(low, high, 41)
    margin = 0.5 if low == high else 0.0
    return np.linspace(low - margin, high + margin, 41)


def _is_logarithmic(edges: np.ndarray) -> bool:
    return bool(edges[0] > 0 and not np.isclose(edges[1] - edges[0], edges[-1] - edges[-2]))


def _histograms(
    inside: Mapping[str, np.ndarray],
    outside: Mapping[str, Mapping[str, np.ndarray]],
    bins: Mapping[str, np.ndarray],
    auroc: Mapping[str, Mapping[str, float]],
    sharex: bool,
) -> Figure:
    figure, axes = panels(len(inside), 1, 9.2, 2.1, sharex=sharex, sharey=True)
    for ax, label in zip(axes[:, 0], inside, strict=True):
        _rows(ax, inside[label], outside[label], bins[label], auroc.get(label, {}))
        ax.set_title(label, fontsize=10, color=INK, loc="left")
        ax.set_ylabel("share of images", fontsize=9)
    return figure


def _rows(
    ax: Axes, inside: np.ndarray, outside: Mapping[str, np.ndarray], bins: np.ndarray, auroc: Mapping[str, float]
) -> None:
    share = np.histogram(np.clip(inside, bins[0], bins[-1]), bins)[0] / len(inside)
    ax.stairs(share, bins, fill=True, color=GREY, alpha=0.45, label="test data")
    for (name, values), tint in zip(outside.items(), _OUTSIDE, strict=False):
        share = np.histogram(np.clip(values, bins[0], bins[-1]), bins)[0] / len(values)
        note = f" (AUROC {auroc[name]:.2f})" if name in auroc else ""
        ax.stairs(share, bins, color=tint, linewidth=1.8, label=f"{name}{note}")
    ax.set_yscale("symlog", linthresh=0.02, linscale=0.5)
    ax.set_yticks([0, 0.02, 0.1, 0.3, 1], ["0", "2 %", "10 %", "30 %", "100 %"])
    ax.set_ylim(0, 1)
    ax.yaxis.set_minor_locator(NullLocator())
    ax.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def _scale_words(ax: Axes, classes: int) -> None:
    top = log(classes)
    ax.set_xlim(0, top)
    ax.set_xlabel(
        f"entropy of the prediction in nats: 0 = certain, {top:.2f} = all {classes} classes alike", fontsize=9
    )
