"""ROC curves of scores for out-of-distribution data: one panel per data set, one curve per score or method."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from osculate.plots.lines import lines
from osculate.plots.style import (
    BLUE,
    COLOURS,
    DASHES,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    YELLOW,
    arrays,
    label,
    label_outer,
    legend,
    title,
    wrapped,
)

_TINTS = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, INK, SKY)
#: Largest number of curves with a legend inside the panel.
INSIDE = 3


@arrays
def roc_curves(
    curves: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]],
    auroc: Mapping[str, Mapping[str, tuple[float, float]]],
    heading: str = "ROC curves: test data against data out of distribution",
) -> Figure:
    """Draw the share of OOD data above each threshold against that of the test data.

    Args:
        curves: False and true positive rates (T,), as from ``osculate.metrics.roc_curve``, by data set and by score or
            method.
        auroc: Area under each curve and its standard error (NaN if missing).
        heading: Heading of the figure.

    Raises:
        ValueError: there is no curve, or one lacks its area.
    """
    if not curves or not all(curves.values()):
        raise ValueError("no ROC curve to draw: pass at least one for each data set.")
    for name, rows in curves.items():
        if missing := [label for label in rows if label not in auroc.get(name, {})]:
            raise ValueError(f"the curves {missing} of {name!r} have no AUROC: give each (value, standard error).")
    every = list(dict.fromkeys(name for rows in curves.values() for name in rows))
    colours = {name: COLOURS.get(name, _TINTS[index % len(_TINTS)]) for index, name in enumerate(every)}
    dashes = {name: DASHES[index // len(_TINTS) % len(DASHES)] for index, name in enumerate(every)}
    beside = len(every) > INSIDE
    most = 2 if beside else 3
    width = 7.0 if beside else max(4.2, 7.0 / min(most, len(curves)))
    figure, axes = wrapped(len(curves), most, width, max(4.2, 1.2 + 0.17 * len(every)), sharex=True, sharey=True)
    place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02)} if beside else {"loc": "lower right"}
    for ax, (name, rows) in zip(axes.flat, curves.items(), strict=False):
        ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle="--")
        for method, rates in rows.items():
            words = f"{method}: {_estimate(*auroc[name][method])}"
            lines(ax, {words: rates}, {words: colours[method]}, dashes[method], linewidth=1.5)
        ax.set(aspect="equal", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        label(ax, name)
        legend(
            ax,
            title="AUROC ± standard error",
            title_fontsize=8,
            frameon=not beside,
            alignment="left",
            edgecolor="none",
            **place,
        )
    label_outer(axes, "false positives: share of the test data", "true positives: share of the OOD data", len(curves))
    title(figure, heading)
    return figure


def _estimate(value: float, error: float) -> str:
    return f"{value:.3f}" if np.isnan(error) else f"{value:.3f} ± {error:.3f}"
