"""Histograms of scores in and out of distribution: predictive entropies, and any other score."""

from collections.abc import Mapping
from math import log

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from osculate.plots.style import GREY, INK, ORANGE, PURPLE, YELLOW, arrays, label, legend, panels, title

_OUTSIDE = (ORANGE, PURPLE, YELLOW, INK)


@arrays
def entropy_histograms(
    inside: Mapping[str, np.ndarray],
    outside: Mapping[str, Mapping[str, np.ndarray]],
    classes: int,
    auroc: Mapping[str, Mapping[str, float]] | None = None,
) -> Figure:
    """Draw histograms of predictive entropy on test and OOD data, one row of axes for each method.

    Args:
        inside: Entropies (N,) of the test data in nats, by method.
        outside: Entropies (M,) of OOD data in nats, by method and data set.
        classes: Number of classes C; the entropy runs from 0 (certain) to log C (uniform).
        auroc: Area under the ROC curve of the entropy (0.5: no better than chance), by method and data set.

    Raises:
        ValueError: there is nothing to draw, or `inside` and `outside` name different methods.
    """
    _require_both(inside, outside)
    bins = np.linspace(0, log(classes), 31)
    figure = _histograms(inside, outside, dict.fromkeys(inside, bins), auroc or {}, sharex=True)
    top = log(classes)
    figure.axes[-1].set_xlim(0, top)
    label(
        figure.axes[-1], x=f"entropy of the prediction in nats: 0 = certain, {top:.2f} = uniform over {classes} classes"
    )
    title(figure, "Entropy of the predictions in and out of distribution")
    return figure


@arrays
def score_histograms(
    inside: Mapping[str, np.ndarray],
    outside: Mapping[str, Mapping[str, np.ndarray]],
    auroc: Mapping[str, Mapping[str, float]] | None = None,
    words: Mapping[str, str] | None = None,
    heading: str = "Scores in and out of distribution: higher is less familiar",
) -> Figure:
    """Draw histograms of any score, one row of axes with its own scale for each score or method.

    The axis covers all but the extreme 1 % of the scores, which are counted at its ends; it is logarithmic if they span
    more than two decades.

    Args:
        inside: Scores (N,) of the test data, by score or method.
        outside: Scores (M,) of OOD data, by score or method and data set.
        auroc: Area under the ROC curve (0.5: no better than chance), by score or method and data set.
        words: Labels of the horizontal axes, by score or method.
        heading: Heading of the figure.

    Raises:
        ValueError: there is nothing to draw, `inside` and `outside` name different scores, a set is empty, or a score
            is not finite.
    """
    _require_both(inside, outside)
    bins = {name: _bins(name, inside[name], outside[name]) for name in inside}
    figure = _histograms(inside, outside, bins, auroc or {}, sharex=False)
    for ax, (name, edges) in zip(figure.axes, bins.items(), strict=True):
        ax.set_xscale("log" if _is_logarithmic(edges) else "linear")
        ax.set_xlim(edges[0], edges[-1])
        label(ax, x=(words or {}).get(name, ""))
    title(figure, heading)
    return figure


def _require_both(inside: Mapping[str, np.ndarray], outside: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    if not inside or inside.keys() != outside.keys():
        raise ValueError(f"scores inside are of {sorted(inside)}, outside of {sorted(outside)}: give both for each.")


def _bins(score: str, inside: np.ndarray, outside: Mapping[str, np.ndarray]) -> np.ndarray:
    """Bin edges over nearly all scores of all sets."""
    for name, values in {"test data": inside, **outside}.items():
        if not len(values) or not np.isfinite(values).all():
            raise ValueError(f"the scores {score!r} of {name} are empty or not finite: give each set finite scores.")
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
    for ax, name in zip(axes[:, 0], inside, strict=True):
        edges = bins[name]
        share = np.histogram(np.clip(inside[name], edges[0], edges[-1]), edges)[0] / len(inside[name])
        ax.stairs(share, edges, fill=True, color=GREY, alpha=0.45, label="test data")
        for (data, values), tint in zip(outside[name].items(), _OUTSIDE, strict=False):
            share = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] / len(values)
            area = auroc.get(name, {}).get(data)
            note = "" if area is None else f" (AUROC {area:.2f})"
            ax.stairs(share, edges, color=tint, linewidth=1.8, label=f"{data}{note}")
        ax.set_yscale("symlog", linthresh=0.02, linscale=0.5)
        ax.set_yticks([0, 0.02, 0.1, 0.3, 1], ["0", "2 %", "10 %", "30 %", "100 %"])
        ax.set_ylim(0, 1)
        ax.yaxis.set_minor_locator(NullLocator())
        legend(ax, loc="center left", bbox_to_anchor=(1, 0.5))
        label(ax, name, y="share of images")
    return figure
