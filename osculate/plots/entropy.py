"""Entropy of predictions in and out of distribution: does the network know what it does not know?"""

from collections.abc import Mapping
from math import log

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from osculate.plots.style import GREY, INK, ORANGE, PURPLE, YELLOW, panels, title

_OUTSIDE = (ORANGE, PURPLE, YELLOW, INK)


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
    if not inside or inside.keys() != outside.keys():
        raise ValueError(f"entropies inside are of {sorted(inside)}, outside of {sorted(outside)}: give both for each.")
    figure, axes = panels(len(inside), 1, 9.2, 2.1, sharex=True, sharey=True)
    bins = np.linspace(0, log(classes), 31)
    for ax, label in zip(axes[:, 0], inside, strict=True):
        _rows(ax, inside[label], outside[label], bins, (auroc or {}).get(label, {}))
        ax.set_title(label, fontsize=10, color=INK, loc="left")
        ax.set_ylabel("share of images", fontsize=9)
    _scale_words(axes[-1, 0], classes)
    title(figure, "How unsure are the predictions, on test data and on data of another kind?")
    return figure


def _rows(
    ax: Axes, inside: np.ndarray, outside: Mapping[str, np.ndarray], bins: np.ndarray, auroc: Mapping[str, float]
) -> None:
    share = np.histogram(inside, bins)[0] / len(inside)
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
