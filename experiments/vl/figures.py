"""Figures of variational Laplace."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from osculate.plots.style import BLUE, GREEN, INK, ORANGE, panels, title

#: Values against the multiplier, with their headings.
MULTIPLIERS_ENDS = {"elbo": "ELBO, nats per datum", "nll": "test NLL, nats", "accuracy": "test accuracy"}


def multipliers(arms: Sequence[Mapping[str, Any]], heading: str) -> Figure:
    """One row a weight of the divergence: the course of log σ/s, then bound and scores against the multiplier.

    Args:
        arms: each with "method", "beta", "multiplier" ("" where there is none), "ratio" (by epoch) and, one a seed,
            "elbo", "nll" and "accuracy".
        heading: the figure's sentence.

    Raises:
        ValueError: there is no arm.
    """
    if not arms:
        raise ValueError("no trainings to draw: pass at least one.")
    betas = list(dict.fromkeys(arm["beta"] for arm in arms))
    figure, axes = panels(len(betas), 1 + len(MULTIPLIERS_ENDS), 3.3, 2.7)
    for row, beta in zip(axes, betas, strict=True):
        here = [arm for arm in arms if arm["beta"] == beta]
        _courses(row[0], here)
        row[0].set_ylabel(f"β = {beta:g}\nmean log σ/s", fontsize=9)
        for ax, (name, label) in zip(row[1:], MULTIPLIERS_ENDS.items(), strict=True):
            _against(ax, here, name)
            ax.set_ylabel(label, fontsize=9)
    axes[0, 1].legend(fontsize=8, frameon=False)
    for ax in axes[-1, 1:]:
        ax.set_xlabel("multiplier of the learning rate of log σ", fontsize=9)
    axes[-1, 0].set_xlabel("epoch", fontsize=9)
    title(figure, heading)
    return figure


def _tint(method: str) -> str:
    return GREEN if method.startswith("VI") else BLUE


def _courses(ax: Axes, arms: Sequence[Mapping[str, Any]]) -> None:
    """The darker, the larger the multiplier, told half-way; the closed form is dashed, the prior the line at zero."""
    told = next((arm["method"] for arm in arms if arm["multiplier"]), None)
    for arm in arms:
        epochs = np.arange(1, len(arm["ratio"]) + 1)
        if not arm["multiplier"]:
            ax.plot(epochs, arm["ratio"], "--", color=ORANGE, linewidth=1.4)
            continue
        alpha = 0.3 + 0.7 * np.log(float(arm["multiplier"]) + 1e-9) / np.log(30)
        ax.plot(
            epochs,
            arm["ratio"],
            color=_tint(arm["method"]),
            linewidth=1.2,
            alpha=float(np.clip(alpha, 0.3, 1)),
        )
        if arm["method"] == told:
            course = np.asarray(arm["ratio"])
            half = int(np.argmax(course >= (course[0] + course[-1]) / 2))  # the ends lie together
            ax.annotate(
                f"× {arm['multiplier']}", (epochs[half], course[half]), (5, -7), textcoords="offset points", fontsize=7
            )
    ax.axhline(0, color=INK, linewidth=0.8, linestyle=":")


def _against(ax: Axes, arms: Sequence[Mapping[str, Any]], name: str) -> None:
    for method in dict.fromkeys(arm["method"] for arm in arms):
        mine = [arm for arm in arms if arm["method"] == method]
        if not mine[0]["multiplier"]:
            ax.axhline(float(np.mean(mine[0][name])), color=ORANGE, linestyle="--", linewidth=1.4, label=method)
            continue
        x = [float(arm["multiplier"]) for arm in mine]
        ax.plot(x, [np.mean(arm[name]) for arm in mine], "o-", color=_tint(method), markersize=4, label=method)
        for arm in mine:
            ax.plot(
                [float(arm["multiplier"])] * len(arm[name]),
                arm[name],
                ".",
                color=_tint(method),
                markersize=3,
            )
    ticks = sorted({float(arm["multiplier"]) for arm in arms if arm["multiplier"]})
    ax.set_xscale("log")
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
