"""Scores of predictions: reliability diagrams, and histograms and ROC curves of data in and out of distribution."""

from collections.abc import Mapping
from math import log
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from osculate.plots import style
from osculate.plots.lines import lines
from osculate.tasks.calibration import CalibrationRecord

#: Largest number of curves with a legend inside the panel.
INSIDE = 3


@style.arrays
def reliability(ax: Axes, confidence: style.Values, accuracy: style.Values, count: style.Values, tint: str) -> None:
    """Draw the accuracy in each bin of confidence on given axes, with the diagonal and bars of one standard error.

    Args:
        ax: Axes to draw on.
        confidence: Mean confidence in each bin (B,).
        accuracy: Accuracy in each bin (B,).
        count: Number of predictions in each bin (B,); empty bins are left out.
        tint: Colour of the dots.
    """
    filled = np.asarray(count) > 0
    confidence, accuracy, number = (np.asarray(part, dtype=float)[filled] for part in (confidence, accuracy, count))
    error = np.sqrt(accuracy * (1 - accuracy) / number)
    ax.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", linewidth=1)
    ax.annotate("perfectly calibrated", (0.06, 0.1), rotation=40, fontsize=8, color=style.GREY)
    ax.vlines(confidence, accuracy, confidence, color=style.PALE, linewidth=6)
    bars: dict[str, Any] = {"color": tint, "markersize": 5, "linewidth": 1.4, "elinewidth": 1}
    ax.errorbar(confidence, accuracy, yerr=error, fmt="o-", **bars)
    ax.set(xlim=(0, 1.02), ylim=(0, 1.04))


def reliability_diagram(records: Mapping[str, CalibrationRecord]) -> Figure:
    """Draw the accuracy in each bin of confidence with the diagonal, and the number of predictions in each bin.

    Dots on the diagonal are calibrated, dots below it overconfident, dots above it underconfident. A bar
    through a dot is one standard error of its accuracy, sqrt(a (1 - a) / n).

    Args:
        records: Results of ``osculate.tasks.calibration`` by method.

    Raises:
        ValueError: there is no record.
    """
    if not records:
        raise ValueError("no calibration record to draw: pass at least one, by name of its method.")
    figure, axes = style.panels(2, len(records), 3.6, 2.5, sharex=True, sharey="row", height_ratios=(3, 1))
    colours = style.tints(records)
    for (above, below), (name, record) in zip(axes.T, records.items(), strict=True):
        reliability(above, record.confidence, record.accuracy, record.count, colours[name])
        ece = float(record.metrics()["ece"])
        above.set_title(f"{name}: calibration error {ece:.3f}", fontsize=10, color=style.INK)
        starts = np.linspace(0, 1, len(record.count), endpoint=False)
        how: dict[str, Any] = {"color": colours[name], "alpha": 0.7, "edgecolor": style.WHITE}
        below.bar(starts, record.count, 1 / len(starts), align="edge", **how)
        below.set_yscale("symlog", linthresh=1)
        below.set_ylim(bottom=0)
        style.label(below, x="confidence: probability of the predicted class")
    style.label(axes[0, 0], y="accuracy")
    style.label(axes[1, 0], y="predictions")
    return style.title(figure, "Are predictions correct as often as they claim to be?")


@style.arrays
def histogram(
    ax: Axes,
    inside: style.Values,
    outside: Mapping[str, style.Values],
    edges: style.Values,
    auroc: Mapping[str, float] | None = None,
) -> None:
    """Draw histograms of scores on given axes: the test data filled in grey, data sets out of distribution as lines.

    Args:
        ax: Axes to draw on.
        inside: Scores (N,) of the test data.
        outside: Scores (M,) of OOD data, by data set.
        edges: Edges of the bins (B + 1,), ascending; scores beyond them count in the outermost bins.
        auroc: Area under the ROC curve by data set, for the legend.
    """

    def shares(values: style.Values) -> np.ndarray:
        return np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] / len(values)

    ax.stairs(shares(inside), edges, fill=True, color=style.GREY, alpha=0.45, label="test data")
    tints = style.tints(outside, style.OUTSIDE)
    for data, values in outside.items():
        note = f" (AUROC {auroc[data]:.2f})" if auroc and data in auroc else ""
        ax.stairs(shares(values), edges, color=tints[data], linewidth=1.8, label=f"{data}{note}")
    ax.set_yscale("symlog", linthresh=0.02, linscale=0.5)
    ax.set_yticks([0, 0.02, 0.1, 0.3, 1], ["0", "2 %", "10 %", "30 %", "100 %"])
    ax.set_ylim(0, 1)
    ax.yaxis.set_minor_locator(NullLocator())


@style.arrays
def uncertainties(values: style.Values, words: str, heading: str = "How uncertain are the predictions?") -> Figure:
    """Draw a histogram of the uncertainty of predictions.

    Args:
        values: Uncertainties (N,).
        words: Label of the axis, with the unit.
        heading: Heading of the figure.

    Raises:
        ValueError: there is no value.
    """
    if not len(values):
        raise ValueError("no uncertainties to draw: pass at least one.")
    figure, axes = style.panels(1, 1, 6.8, 3.2)
    axes[0, 0].hist(values, bins=40, color=style.BLUE)
    style.label(axes[0, 0], None, words, "number of inputs")
    return style.title(figure, heading)


@style.arrays
def entropy_histograms(
    inside: Mapping[str, style.Values],
    outside: Mapping[str, Mapping[str, style.Values]],
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
    style.label(
        figure.axes[-1], x=f"entropy of the prediction in nats: 0 = certain, {top:.2f} = uniform over {classes} classes"
    )
    return style.title(figure, "Entropy of the predictions in and out of distribution")


@style.arrays
def score_histograms(
    inside: Mapping[str, style.Values],
    outside: Mapping[str, Mapping[str, style.Values]],
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
        evenly = np.isclose(edges[1] - edges[0], edges[-1] - edges[-2])
        ax.set_xscale("log" if edges[0] > 0 and not evenly else "linear")
        ax.set_xlim(edges[0], edges[-1])
        style.label(ax, x=(words or {}).get(name, ""))
    return style.title(figure, heading)


def _require_both(inside: Mapping[str, style.Values], outside: Mapping[str, Mapping[str, style.Values]]) -> None:
    if not inside or inside.keys() != outside.keys():
        raise ValueError(f"scores inside are of {sorted(inside)}, outside of {sorted(outside)}: give both for each.")


def _bins(score: str, inside: style.Values, outside: Mapping[str, style.Values]) -> np.ndarray:
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


def _histograms(
    inside: Mapping[str, style.Values],
    outside: Mapping[str, Mapping[str, style.Values]],
    bins: Mapping[str, np.ndarray],
    auroc: Mapping[str, Mapping[str, float]],
    sharex: bool,
) -> Figure:
    figure, axes = style.panels(len(inside), 1, 9.2, 2.1, sharex=sharex, sharey=True)
    for ax, name in zip(axes[:, 0], inside, strict=True):
        histogram(ax, inside[name], outside[name], bins[name], auroc.get(name))
        style.legend(ax, loc="center left", bbox_to_anchor=(1, 0.5))
        style.label(ax, name, y="share of images")
    return figure


@style.arrays
def roc(
    ax: Axes,
    curves: Mapping[str, tuple[style.Values, style.Values]],
    colours: Mapping[str, str] | None = None,
    dashes: str | Mapping[str, Any] = "-",
) -> None:
    """Draw ROC curves on given axes, with the diagonal of chance.

    Args:
        ax: Axes to draw on.
        curves: False and true positive rates (T,) by name, as from ``osculate.metrics.roc_curve``.
        colours: Colours by name; by default those of :func:`osculate.plots.style.tints`.
        dashes: Line style, of all lines or by name.
    """
    ax.plot([0, 1], [0, 1], color=style.GREY, linewidth=0.8, linestyle="--")
    lines(ax, curves, colours, dashes, linewidth=1.5)
    ax.set(aspect="equal", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))


@style.arrays
def roc_curves(
    curves: Mapping[str, Mapping[str, tuple[style.Values, style.Values]]],
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
        if missing := [each for each in rows if each not in auroc.get(name, {})]:
            raise ValueError(f"the curves {missing} of {name!r} have no AUROC: give each (value, standard error).")
    every = list(dict.fromkeys(name for rows in curves.values() for name in rows))
    colours = style.tints(every, style.SCORES)
    beside = len(every) > INSIDE
    most = 2 if beside else 3
    width = 7.0 if beside else max(4.2, 7.0 / min(most, len(curves)))
    figure, axes = style.wrapped(len(curves), most, width, max(4.2, 1.2 + 0.17 * len(every)), sharex=True, sharey=True)
    place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02)} if beside else {"loc": "lower right"}
    for ax, (name, rows) in zip(axes.flat, curves.items(), strict=False):
        words = {}
        for method in rows:
            area, error = auroc[name][method]
            words[method] = f"{method}: {area:.3f}" if np.isnan(error) else f"{method}: {area:.3f} ± {error:.3f}"
        roc(ax, *({words[method]: part[method] for method in rows} for part in (rows, colours)))
        style.label(ax, name)
        style.legend(
            ax,
            title="AUROC ± standard error",
            title_fontsize=8,
            frameon=not beside,
            alignment="left",
            edgecolor="none",
            **place,
        )
    style.label_outer(
        axes, "false positives: share of the test data", "true positives: share of the OOD data", len(curves)
    )
    return style.title(figure, heading)
