"""Reliability diagrams: how often a prediction is right, against how sure it was."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from osculate.plots.style import GREY, INK, PALE, colour, panels, title
from osculate.tasks.calibration import CalibrationRecord


def reliability_diagram(records: Mapping[str, CalibrationRecord]) -> Figure:
    """Accuracy in each bin of confidence beside the diagonal, with the number of predictions in each bin below.

    Dots on the diagonal are calibrated; dots below it claim more than they keep. A bar through a dot is one standard
    error of its accuracy, sqrt(a (1 - a) / n).

    Args:
        records: what ``osculate.tasks.calibration`` measured, by the name of the method.

    Raises:
        ValueError: there is no record.
    """
    if not records:
        raise ValueError("no calibration record to draw: pass at least one, by name of its method.")
    figure, axes = panels(2, len(records), 3.6, 2.5, sharex=True, sharey="row", height_ratios=(3, 1))
    for index, (label, record) in enumerate(records.items()):
        _accuracy(axes[0, index], label, record, colour(label, index))
        _counts(axes[1, index], record, colour(label, index))
    axes[0, 0].set_ylabel("share that is right", fontsize=10)
    axes[1, 0].set_ylabel("predictions", fontsize=10)
    title(figure, "Is a prediction right as often as it claims to be?")
    return figure


def _accuracy(ax: Axes, label: str, record: CalibrationRecord, tint: str) -> None:
    confidence, accuracy, count = _filled(record)
    error = np.sqrt(accuracy * (1 - accuracy) / count)
    ax.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1)
    ax.annotate("perfectly calibrated", (0.06, 0.1), rotation=40, fontsize=8, color=GREY)
    ax.vlines(confidence, accuracy, confidence, color=PALE, linewidth=6)
    ax.errorbar(confidence, accuracy, yerr=error, fmt="o-", color=tint, markersize=5, linewidth=1.4, elinewidth=1)
    ece = float(record.metrics()["ece"])
    ax.set_title(f"{label}: calibration error {ece:.3f}", fontsize=10, color=INK)
    ax.set(xlim=(0, 1.02), ylim=(0, 1.04))


def _counts(ax: Axes, record: CalibrationRecord, tint: str) -> None:
    count = np.asarray(record.count, dtype=float)
    edges = np.linspace(0, 1, len(count) + 1)
    ax.bar(edges[:-1], count, width=np.diff(edges), align="edge", color=tint, alpha=0.7, edgecolor="white")
    ax.set_yscale("symlog", linthresh=1)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("confidence: probability of the predicted class", fontsize=9)


def _filled(record: CalibrationRecord) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The bins that hold a prediction: mean confidence, accuracy, count."""
    count = np.asarray(record.count, dtype=float)
    keep = count > 0
    confidence, accuracy = (np.asarray(part, dtype=float)[keep] for part in (record.confidence, record.accuracy))
    return confidence, accuracy, count[keep]
