"""Whether error bars of pixels hold what they promise: how often, and where."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from osculate.plots.arrays import Values
from osculate.plots.style import GREY, INK, MARKERS, panels, tints, title


def image_calibration(
    levels: Values, covered: Mapping[str, Values], groups: Mapping[str, tuple[Values, Values]], heading: str
) -> Figure:
    """Left, the share of pixels within central intervals; right, errors of pixels with similar error bars.

    Args:
        levels: what the intervals should hold (L,).
        covered: by method, what they hold (L,).
        groups: by method, root mean squares of error bars (G,) and of errors (G,), for groups of pixels.
        heading: the figure's sentence.

    Raises:
        ValueError: there is no method, or curves that are not as long as the levels.
    """
    if not covered:
        raise ValueError("no calibration to draw: pass at least one method's coverage, by its name.")
    for name, values in covered.items():
        if len(values) != len(levels):
            raise ValueError(f"{name!r} has {len(values)} shares for {len(levels)} levels: give one for each.")
    colours = tints([*covered, *groups])
    figure, axes = panels(1, 2 if groups else 1, 4.9, 4.6)
    left = axes[0, 0]
    left.plot([0, 1], [0, 1], "--", color=GREY, linewidth=1)
    for mark, (name, values) in zip(MARKERS * 3, covered.items(), strict=False):
        left.plot(levels, values, color=colours[name], marker=mark, markersize=3.5, linewidth=1.3, label=name)
    left.set(xlim=(0, 1), ylim=(0, 1))
    left.set_xlabel("an interval should hold this share of the pixels", fontsize=9)
    left.set_ylabel("it holds", fontsize=9)
    left.set_title("above the line: too modest; below: too sure", fontsize=9, color=INK, loc="left")
    if groups:
        right = axes[0, 1]
        bars, errors = (np.concatenate([np.asarray(pair[n]) for pair in groups.values()]) for n in (0, 1))
        low, high = float(bars.min()) / 2, 1.5 * float(max(bars.max(), errors.max()))
        right.plot([low, high], [low, high], "--", color=GREY, linewidth=1)
        for mark, (name, (expected, found)) in zip(MARKERS * 3, groups.items(), strict=False):
            right.plot(expected, found, color=colours[name], marker=mark, markersize=3.5, linewidth=1.1)
        # pixels that are exact to many digits, such as those outside an object, may lie below
        right.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low / 3, high))
        right.set_xlabel("error bar (groups of pixels with similar ones)", fontsize=9)
        right.set_ylabel("error, root mean square", fontsize=9)
        right.set_title("above the line: worse than the error bar says", fontsize=9, color=INK, loc="left")
    figure.legend(*left.get_legend_handles_labels(), fontsize=8.5, frameon=False, loc="outside lower center", ncols=2)
    title(figure, heading)
    return figure
