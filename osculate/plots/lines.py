"""Line plots, one line per method with error bars and reference levels, and dot plots, one row per method."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from osculate.plots import style

#: A mean with its standard error, 0 where the value is exact.
Estimate = tuple[float, float]
_WEIGHTED = "importance-weighted bound"


@style.arrays
def lines(
    ax: Axes,
    shown: Mapping[str, tuple[style.Values, style.Values]],
    colours: Mapping[str, str] | None = None,
    dashes: str | Mapping[str, Any] = "-",
    markers: str | None = None,
    errors: Mapping[str, style.Values] | None = None,
    **options: Any,
) -> None:
    """Draw named lines on given axes.

    Args:
        ax: Axes to draw on.
        shown: Abscissae and values (P,) by name.
        colours: Colours by name; by default those of :func:`osculate.plots.style.tints`.
        dashes: Line style, of all lines or by name.
        markers: Markers of the lines in turn; a single one serves all.
        errors: Standard errors (P,) by name, drawn as bars.
        **options: Options of ``Axes.plot``, for all lines.
    """
    colours = colours or style.tints(shown)
    for index, (name, (x, y)) in enumerate(shown.items()):
        line: dict[str, Any] = {"linewidth": 1.4, "markersize": 4.5, "color": colours[name], "label": name}
        line["linestyle"] = dashes if isinstance(dashes, str) else dashes.get(name, "-")
        line["marker"] = markers[index % len(markers)] if markers else None
        line |= options
        if errors is None:
            ax.plot(x, y, **line)
        else:
            ax.errorbar(x, y, yerr=errors[name], capsize=2, elinewidth=1, **line)


@style.arrays
def dots(
    ax: Axes,
    values: Mapping[str, style.Values],
    order: Sequence[str],
    colours: Mapping[str, str] | None = None,
    errors: Mapping[str, float] | None = None,
    limits: tuple[float, float] | None = None,
) -> None:
    """Draw values by name on given axes, the first name at the top.

    Args:
        ax: Axes to draw on.
        values: Values by name, one per seed; names may be missing.
        order: The names in order, which label the rows.
        colours: Colours by name; by default those of :func:`osculate.plots.style.tints`.
        errors: Standard errors of the means by name. With them only the means are drawn, with bars; without, a dot per
            seed and a stroke at the mean.
        limits: Ends of the horizontal axis. A mean outside is an arrow at the edge, with its value.
    """
    colours = colours or style.tints(order)
    for name, each in values.items():
        height, tint, middle = order.index(name), colours[name], statistics.mean(each)
        if limits is not None and not limits[0] <= middle <= limits[1]:
            right = middle > limits[1]
            number = f"{middle:,.0f}" if 100 <= abs(middle) < 1e5 else f"{middle:.3g}"
            ax.annotate(
                f"{number} →" if right else f"← {number}",
                (0.98 if right else 0.02, height),
                xycoords=ax.get_yaxis_transform(),
                ha="right" if right else "left",
                va="center",
                color=tint,
                fontsize=8,
            )
        elif errors is not None:
            ax.errorbar(middle, height, xerr=errors[name], fmt="o", color=tint, markersize=5, linewidth=1.4)
        else:
            ax.plot(each, [height] * len(each), "o", color=tint, markersize=4, alpha=0.5)
            ax.plot(middle, height, "|", color=tint, markersize=14, markeredgewidth=2)
    ax.set_yticks(range(len(order)), order, fontsize=8)
    ax.set_ylim(len(order) - 0.5, -0.5)
    ax.tick_params(axis="x", labelsize=8)


@style.arrays
def spread(
    ax: Axes, x: style.Values, low: style.Values, high: style.Values, tint: str, alpha: float = 0.18, **options: Any
) -> None:
    """Shade the area between two lines on given axes.

    Args:
        ax: Axes to draw on.
        x: Abscissae (P,).
        low: Values of the lower line (P,).
        high: Values of the upper line (P,).
        tint: Colour of the area.
        alpha: Opacity of the area.
        **options: Options of ``Axes.fill_between``.
    """
    ax.fill_between(x, low, high, color=tint, alpha=alpha, linewidth=0, **options)


@style.arrays
def accuracy_against_labels(
    labels: style.Values,
    curves: Mapping[str, tuple[style.Values, style.Values]],
    heading: str,
    chance: float | None = None,
) -> Figure:
    """Draw one curve per method over a logarithmic axis of labels; bars are one standard error.

    Args:
        labels: Labelled images of each class (L,).
        curves: Mean accuracies (L,) and their standard errors (L,) by method; NaN if missing.
        heading: Heading of the figure.
        chance: Accuracy of guessing, a dashed line.

    Raises:
        ValueError: there is no curve, or one has another length.
    """
    if not curves or any(len(values) != len(labels) for pair in curves.values() for values in pair):
        lengths = ", ".join(f"{name!r} {len(mean)}" for name, (mean, _) in curves.items()) or "none"
        raise ValueError(f"curves of {len(labels)} accuracies and errors are needed, but there are: {lengths}.")
    figure, axes = style.panels(1, 1, 7.4, 4.0)
    ax = axes[0, 0]
    if chance is not None:
        ax.axhline(chance, color=style.GREY, linestyle="--", linewidth=1)
        ax.annotate(
            "chance", (labels[-1], chance), (0, 3), "data", "offset points", fontsize=8, color=style.GREY, ha="right"
        )
    # shift the methods slightly, so that their bars do not overlap
    shifted = {
        name: ([number * 1.03 ** (index - (len(curves) - 1) / 2) for number in labels], mean)
        for index, (name, (mean, _)) in enumerate(curves.items())
    }
    lines(ax, shifted, markers=style.MARKERS, errors={name: error for name, (_, error) in curves.items()})
    style.ticks(ax, labels)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    style.label(ax, None, "labelled images of each class", "test accuracy (bars: one standard error)")
    style.legend(ax, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return style.title(figure, heading)


@style.arrays
def course(
    epochs: style.Values, curves: Mapping[str, style.Values], heading: str = "The course of the training"
) -> Figure:
    """Draw quantities of a training against the epoch, a panel with its own scale for each.

    Args:
        epochs: Numbers of the epochs (E,).
        curves: Values (E,) by quantity, which labels its axis; NaN if missing.
        heading: Heading of the figure.

    Raises:
        ValueError: there is no curve, or one has another length.
    """
    if not curves or any(len(values) != len(epochs) for values in curves.values()):
        lengths = ", ".join(f"{name!r} {len(values)}" for name, values in curves.items()) or "none"
        raise ValueError(f"curves of {len(epochs)} epochs are needed, but there are: {lengths}.")
    figure, axes = style.panels(len(curves), 1, 7.2, 2.3, sharex=True)
    tints = style.tints(curves)
    for ax, (name, values) in zip(axes[:, 0], curves.items(), strict=True):
        lines(ax, {name: (epochs, values)}, tints, markers="o" if len(epochs) < 30 else None, linewidth=1.6)
        style.label(ax, y=name)
    style.label(axes[-1, 0], x="epoch")
    return style.title(figure, heading)


@style.arrays
def errors(
    mean: style.Values, sd: style.Values, targets: style.Values, heading: str = "Errors, and the error bars around zero"
) -> Figure:
    """Draw the errors of predictions against their means, over bars of one and two standard deviations around zero.

    Args:
        mean: Predictive means (N,).
        sd: Predictive standard deviations (N,).
        targets: Targets (N,).
        heading: Heading of the figure.

    Raises:
        ValueError: there is no prediction, or lengths differ.
    """
    if not len(mean) or not len(mean) == len(sd) == len(targets):
        raise ValueError(f"{len(mean)} means, {len(sd)} deviations and {len(targets)} targets: give one of each.")
    figure, axes = style.panels(1, 1, 7.2, 4.0)
    ax, sd = axes[0, 0], np.asarray(sd)
    for width, thickness, tint in ((2, 1.0, style.SKY), (1, 2.6, style.YELLOW)):
        ax.vlines(mean, -width * sd, width * sd, color=tint, linewidth=thickness, label=f"± {width} sd")
    ax.plot(mean, np.asarray(targets) - np.asarray(mean), "o", color=style.INK, markersize=3.5, label="error")
    ax.axhline(0, color=style.GREY, linewidth=0.8)
    style.label(ax, None, "predicted mean, units of the target", "target − prediction")
    style.legend(ax, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return style.title(figure, heading)


@style.arrays
def residuals(misfits: style.Values, variance: float, step: int, heading: str, estimated: bool = False) -> Figure:
    """Draw the mean squared residual against the training step, with the variance of the noise.

    Args:
        misfits: Mean squared residuals, one per step.
        variance: Variance of the noise, in the units of the misfits.
        step: Step whose weights were taken.
        heading: Heading of the figure.
        estimated: True if the variance was estimated from the same data.

    Raises:
        ValueError: there is no step.
    """
    if not len(misfits):
        raise ValueError("no residuals to draw: pass those of at least one step.")
    figure, axes = style.panels(1, 1, 6.4, 3.6)
    ax = axes[0, 0]
    lines(ax, {"mean squared residual of the data": (range(1, len(misfits) + 1), misfits)}, linewidth=1.2)
    words = "variance of the noise, estimated" if estimated else "variance of the noise"
    ax.axhline(variance, color=style.GREY, linewidth=1.2, linestyle="--", label=words)
    if step < len(misfits):
        ax.axvline(step, color=style.ORANGE, linewidth=1.2, label="weights taken here")
    ax.set_yscale("log")
    style.label(ax, None, "step of training", "squared units of the data")
    style.legend(ax)
    return style.title(figure, heading)


@style.arrays
def image_calibration(
    levels: style.Values,
    covered: Mapping[str, style.Values],
    groups: Mapping[str, tuple[style.Values, style.Values]],
    heading: str,
) -> Figure:
    """Draw the coverage of central intervals (left), and errors of pixels against similar error bars (right).

    Args:
        levels: Nominal coverage of the intervals (L,).
        covered: Share of the pixels within them (L,), by method.
        groups: Root mean squares of error bars (G,) and of errors (G,) by method, for groups of pixels.
        heading: Heading of the figure.

    Raises:
        ValueError: there is no method, or a curve and the levels differ in length.
    """
    if not covered:
        raise ValueError("no calibration to draw: pass at least one method's coverage, by its name.")
    for name, values in covered.items():
        if len(values) != len(levels):
            raise ValueError(f"{name!r} has {len(values)} shares for {len(levels)} levels: give one for each.")
    colours = style.tints([*covered, *groups])
    figure, axes = style.panels(1, 2 if groups else 1, 4.9, 4.6)
    left = axes[0, 0]
    left.plot([0, 1], [0, 1], "--", color=style.GREY, linewidth=1)
    lines(
        left,
        {name: (levels, values) for name, values in covered.items()},
        colours,
        markers=style.MARKERS,
        markersize=3.5,
    )
    left.set(xlim=(0, 1), ylim=(0, 1))
    style.label(left, "above the line: underconfident; below: overconfident")
    style.label(left, None, "nominal coverage of an interval", "share of the pixels within it")
    if groups:
        right = axes[0, 1]
        bars, errors = (np.concatenate([np.asarray(pair[n]) for pair in groups.values()]) for n in (0, 1))
        low, high = float(bars.min()) / 2, 1.5 * float(max(bars.max(), errors.max()))
        right.plot([low, high], [low, high], "--", color=style.GREY, linewidth=1)
        lines(right, groups, colours, markers=style.MARKERS, markersize=3.5, linewidth=1.1)
        # nearly exact pixels, such as those outside an object, may lie below
        right.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low / 3, high))
        style.label(right, "above the line: worse than the error bar says")
        style.label(right, None, "error bar (groups of pixels with similar ones)", "error, root mean square")
    style.legend_below(figure, left, 2, 8.5)
    return style.title(figure, heading)


@dataclass(frozen=True)
class Bounds:
    """Estimates of one model's log p(x), means over data.

    Args:
        counts: Numbers K of importance samples (P,); with K = 1 the bound is the ELBO.
        weighted: Means (P,) of the importance-weighted bound (Burda et al., 2016) and their standard errors (P,).
        levels: Estimates by name that do not depend on K: bounds by annealed importance sampling, the exact value.
    """

    counts: style.Values
    weighted: tuple[style.Values, style.Values]
    levels: Mapping[str, Estimate] = field(default_factory=dict)


@style.arrays
def sandwich(shown: Mapping[str, Bounds], heading: str, words: str = "log p(x), nats per image") -> Figure:
    """Draw one panel per model: the bound against K, and estimates independent of K; bands are one standard error.

    Args:
        shown: Bounds by model.
        heading: Heading of the figure.
        words: Label of the vertical axis.

    Raises:
        ValueError: there is no model, or counts and bounds differ in length.
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
    colours = style.tints([_WEIGHTED, *(level for bounds in shown.values() for level in bounds.levels)])
    figure, axes = style.wrapped(len(shown), 2, *((5.4, 4.6) if len(shown) > 1 else (6.6, 5.2)))
    for ax, (name, bounds) in zip(axes.flat, shown.items(), strict=False):
        means, errors = map(np.asarray, bounds.weighted)
        most, tint = int(np.argmax(bounds.counts)), colours[_WEIGHTED]
        # the numbers are in the legend, as the lines are too close to be read off
        words_of_line = _with_error(f"{_WEIGHTED}, K = {bounds.counts[most]}", means[most], errors[most])
        lines(ax, {words_of_line: (bounds.counts, means)}, {words_of_line: tint}, markers="o", linewidth=1.6)
        spread(ax, bounds.counts, means - errors, means + errors, tint, 0.2)
        if 1 in bounds.counts:
            one = list(bounds.counts).index(1)
            elbo = _with_error("ELBO, K = 1", means[one], errors[one])
            ax.plot(1, means[one], "D", color=style.ORANGE, markersize=7, label=elbo)
        for level, (mean, error) in bounds.levels.items():
            ax.axhspan(mean - error, mean + error, color=colours[level], alpha=0.2, linewidth=0)
            words_of_level = _with_error(level, mean, error)
            ax.axhline(mean, color=colours[level], linewidth=1.4, linestyle="--", label=words_of_level)
        style.ticks(ax, bounds.counts, 8)
        style.label(ax, name, "importance samples K")
        style.legend(ax, fontsize=8.5, loc="upper left", bbox_to_anchor=(0.0, -0.16), borderaxespad=0)
    style.label_outer(axes, "importance samples K", words, len(shown))
    return style.title(figure, heading)


def _with_error(name: str, mean: float, error: float) -> str:
    return f"{name}: {mean:.2f} ± {error:.2f}" if error else f"{name}: {mean:.2f}"
