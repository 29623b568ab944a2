"""Reliability diagrams: the share of correct predictions against their confidence."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from osculate.plots.style import GREY, INK, PALE, label, panels, tints, title
from osculate.tasks.calibration import CalibrationRecord


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
    figure, axes = panels(2, len(records), 3.6, 2.5, sharex=True, sharey="row", height_ratios=(3, 1))
    colours = tints(records)
    for (above, below), (name, record) in zip(axes.T, records.items(), strict=True):
        confidence, accuracy, count = _filled(record)
        error = np.sqrt(accuracy * (1 - accuracy) / count)
        above.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1)
        above.annotate("perfectly calibrated", (0.06, 0.1), rotation=40, fontsize=8, color=GREY)
        above.vlines(confidence, accuracy, confidence, color=PALE, linewidth=6)
        style: dict[str, Any] = {"color": colours[name], "markersize": 5, "linewidth": 1.4, "elinewidth": 1}
        above.errorbar(confidence, accuracy, yerr=error, fmt="o-", **style)
        ece = float(record.metrics()["ece"])
        above.set_title(f"{name}: calibration error {ece:.3f}", fontsize=10, color=INK)
        above.set(xlim=(0, 1.02), ylim=(0, 1.04))
        every = np.asarray(record.count, dtype=float)
        edges = np.linspace(0, 1, len(every) + 1)
        below.bar(edges[:-1], every, 1 / len(every), align="edge", color=colours[name], alpha=0.7, edgecolor="white")
        below.set_yscale("symlog", linthresh=1)
        below.set_ylim(bottom=0)
        label(below, x="confidence: probability of the predicted class")
    label(axes[0, 0], y="share that is right")
    label(axes[1, 0], y="predictions")
    title(figure, "Is a prediction right as often as it claims to be?")
    return figure


def _filled(record: CalibrationRecord) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The bins that hold a prediction: mean confidence, accuracy, count."""
    count = np.asarray(record.count, dtype=float)
    filled = count > 0
    confidence, accuracy = (np.asarray(part, dtype=float)[filled] for part in (record.confidence, record.accuracy))
    return confidence, accuracy, count[filled]
