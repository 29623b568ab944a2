"""How tightly bounds enclose what a model says of data: importance weighting from below, annealing from both sides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from osculate.plots.arrays import Values
from osculate.plots.style import INK, ORANGE, panels, tints, title

#: A mean with its standard error, 0 where the value is exact.
Estimate = tuple[float, float]
_WEIGHTED = "importance-weighted bound"


@dataclass(frozen=True)
class Bounds:
    """Estimates of one model's log p(x), means over data.

    Args:
        counts: numbers K of importance samples (P,); with K = 1 the bound is the ELBO.
        weighted: means (P,) of the importance-weighted bound (Burda et al., 2016) and their standard errors (P,).
        levels: by name, what does not depend on K: bounds by annealed importance sampling, the exact value.
    """

    counts: Sequence[int]
    weighted: tuple[Values, Values]
    levels: Mapping[str, Estimate] = field(default_factory=dict)


def sandwich(shown: Mapping[str, Bounds], heading: str, words: str = "log p(x), nats per image") -> Figure:
    """One panel a model: the bound against K, beside lines that do not depend on it; bands are one standard error.

    Args:
        shown: by model.
        heading: the figure's sentence.
        words: of the vertical axis.

    Raises:
        ValueError: there is no model, or counts and bounds that are not as many.
    """
    if not shown:
        raise ValueError("no bounds to draw: pass those of at least one model, by its name.")
    for name, bounds in shown.items():
        lengths = [len(bounds.counts), *map(len, bounds.weighted)]
        if not lengths[0] or len(set(lengths)) > 1:
            raise ValueError(
                f"{name!r} has {lengths[0]} counts, {lengths[1]} bounds and {lengths[2]} standard errors: give one "
                "of each for every number of samples."
            )
    colours = tints([_WEIGHTED, *(level for bounds in shown.values() for level in bounds.levels)])
    columns = min(2, len(shown))
    figure, axes = panels(-(-len(shown) // columns), columns, *((5.4, 4.6) if columns > 1 else (6.6, 5.2)))
    for ax, (name, bounds) in zip(axes.flat, shown.items(), strict=False):
        _panel(ax, bounds, colours)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ax.set_xlabel("importance samples K", fontsize=9)
    for ax in axes[:, 0]:
        ax.set_ylabel(words, fontsize=9)
    for ax in axes.flat[len(shown) :]:
        ax.set_visible(False)
    title(figure, heading)
    return figure


def _panel(ax: Axes, bounds: Bounds, colours: Mapping[str, str]) -> None:
    """The legend tells the numbers, which lie too near one another to be read off."""
    means, errors = map(np.asarray, bounds.weighted)
    most, tint = int(np.argmax(bounds.counts)), colours[_WEIGHTED]
    label = _told(f"{_WEIGHTED}, K = {bounds.counts[most]}", means[most], errors[most])
    ax.plot(bounds.counts, means, "o-", color=tint, markersize=4, linewidth=1.6, label=label)
    ax.fill_between(bounds.counts, means - errors, means + errors, color=tint, alpha=0.2, linewidth=0)
    if 1 in bounds.counts:
        one = list(bounds.counts).index(1)
        ax.plot(1, means[one], "D", color=ORANGE, markersize=7, label=_told("ELBO, K = 1", means[one], errors[one]))
    for level, (mean, error) in bounds.levels.items():
        ax.axhspan(mean - error, mean + error, color=colours[level], alpha=0.2, linewidth=0)
        ax.axhline(mean, color=colours[level], linewidth=1.4, linestyle="--", label=_told(level, mean, error))
    ax.set_xscale("log")
    ax.set_xticks(list(bounds.counts), labels=[str(count) for count in bounds.counts], fontsize=8)
    ax.minorticks_off()
    ax.legend(fontsize=8.5, frameon=False, loc="upper left", bbox_to_anchor=(0.0, -0.16), borderaxespad=0)


def _told(name: str, mean: float, error: float) -> str:
    return f"{name}: {mean:.2f} ± {error:.2f}" if error else f"{name}: {mean:.2f}"
