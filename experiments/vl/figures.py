"""Figures of variational Laplace."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from osculate import plots
from osculate.plots import style

#: Values against the multiplier, with their labels.
ENDS = {"elbo": "ELBO, nats per datum", "nll": "test NLL, nats", "accuracy": "test accuracy"}


def multipliers(arms: Sequence[Mapping[str, Any]], heading: str) -> Figure:
    """One row a weight of the divergence: log σ/s by epoch, then bound and scores against the multiplier.

    Courses are the darker, the larger the multiplier; the closed form is dashed, the prior the line at zero.

    Args:
        arms: Trainings with "method", "beta", "multiplier" ("" where there is none), "ratio" (by epoch) and "elbo",
            "nll" and "accuracy", one a seed.
        heading: Heading of the figure.

    Raises:
        ValueError: there is no training.
    """
    if not arms:
        raise ValueError("no trainings to draw: pass at least one.")
    betas = list(dict.fromkeys(arm["beta"] for arm in arms))
    tints = {
        arm["method"]: (style.GREEN if arm["method"].startswith("VI") else style.BLUE)
        if arm["multiplier"]
        else style.ORANGE
        for arm in arms
    }
    steps = sorted({float(arm["multiplier"]) for arm in arms if arm["multiplier"]})
    named = next((arm["method"] for arm in arms if arm["multiplier"]), None)
    figure, axes = style.panels(len(betas), 1 + len(ENDS), 3.3, 2.7)
    for row, beta in zip(axes, betas, strict=True):
        here = [arm for arm in arms if arm["beta"] == beta]
        style.label(row[0], y=f"β = {beta:g}\nmean log σ/s")
        row[0].axhline(0, color=style.INK, linewidth=0.8, linestyle=":")
        for arm in here:
            course, tint = np.asarray(arm["ratio"]), tints[arm["method"]]
            epochs = np.arange(1, len(course) + 1)
            if not arm["multiplier"]:
                row[0].plot(epochs, course, "--", color=tint, linewidth=1.4)
                continue
            alpha = np.clip(0.3 + 0.7 * np.log(float(arm["multiplier"]) + 1e-9) / np.log(30), 0.3, 1)
            row[0].plot(epochs, course, color=tint, linewidth=1.2, alpha=float(alpha))
            if arm["method"] == named:  # half-way, since the ends lie together
                half = int(np.argmax(course >= (course[0] + course[-1]) / 2))
                place = (epochs[half], course[half])
                row[0].annotate(f"× {arm['multiplier']}", place, (5, -7), textcoords="offset points", fontsize=8)
        for ax, (name, words) in zip(row[1:], ENDS.items(), strict=True):
            style.label(ax, y=words)
            means: dict[str, tuple[list[float], list[float]]] = {}
            for arm in here:
                if not arm["multiplier"]:
                    line = {"color": style.ORANGE, "linestyle": "--", "linewidth": 1.4, "label": arm["method"]}
                    ax.axhline(float(np.mean(arm[name])), **line)
                    continue
                x, y = means.setdefault(arm["method"], ([], []))
                x.append(float(arm["multiplier"]))
                y.append(float(np.mean(arm[name])))
                ax.plot([x[-1]] * len(arm[name]), arm[name], ".", color=tints[arm["method"]], markersize=3)
            plots.lines(ax, means, tints, markers="os")
            style.ticks(ax, steps)
    style.legend(axes[0, 1])
    for ax in axes[-1, 1:]:
        style.label(ax, x="multiplier of the learning rate of log σ")
    style.label(axes[-1, 0], x="epoch")
    style.title(figure, heading)
    return figure
