"""Figures of the linearised Laplace tutorial and its experiments."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from osculate import plots
from osculate.plots import style
from osculate.plots.bands import scale_to

#: Mean difference and its standard error by way to predict and set.
Differences = Mapping[str, Mapping[str, Sequence[float]]]
#: Marked losses of a logarithmic axis, in nats.
LOSSES = (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0)


def adapted(data: Mapping[str, Any]) -> Figure:
    """Draw bands of a toy for several precisions, its error bars against the scale of weights, and NLL by architecture.

    Args:
        data: "grid" and "truth" (G,), "points" x and y, "bands" mean and sd by title; "scales" (K,) and "deviation" by
            prior, one list (K,) per seed; "nll" by architecture and way, "map" by architecture, means of "seeds".
    """
    columns = -(-len(data["bands"]) // 2)
    figure = style.empty(3.6 * columns, 9.2)
    grid = figure.add_gridspec(3, 2 * columns, height_ratios=(1, 1, 1.25))
    axes: list[Axes] = []
    for number, (name, shown) in enumerate(data["bands"].items()):
        row, column = divmod(number, columns)
        first = axes[0] if axes else None
        axes.append(figure.add_subplot(grid[row, 2 * column : 2 * column + 2], sharex=first, sharey=first))
        style.plain(axes[-1])
        tint = style.ORANGE if "θ̃" in name else style.BLUE if "θ*" in name else style.PURPLE
        points = (data["points"]["x"], data["points"]["y"])
        plots.band(axes[-1], plots.Band(data["grid"], shown["mean"], shown["sd"]), tint, points, data["truth"])
        style.label(axes[-1], name)
    scale_to(axes[0], data["truth"], 1.2)
    style.legend(axes[0], loc="upper left", ncols=2)
    _scales(figure.add_subplot(grid[2, :columns]), data["scales"], data["deviation"])
    _architectures(figure.add_subplot(grid[2, columns:]), data["nll"], data["map"], data["seeds"])
    return style.title(
        figure, "Prior precisions chosen by the evidence: at the trained weights θ̃ the error bars are too wide"
    )


def _scales(ax: Axes, scales: Sequence[float], deviation: Mapping[str, Sequence[Sequence[float]]]) -> None:
    style.plain(ax)
    tints = style.tints(deviation)
    for name, runs in deviation.items():
        for number, values in enumerate(runs):
            plots.lines(ax, {"_" if number else name: (scales, values)}, markers="o", color=tints[name])
    style.ticks(ax, scales)
    ax.set_ylim(0, 1.3 * max(max(values) for runs in deviation.values() for values in runs))
    seeds = max(map(len, deviation.values()))
    style.label(
        ax, f"The factor does not change the network\n(toy, evidence at θ*, one line for each of {seeds} seeds)"
    )
    style.label(ax, None, "factor k on the weights of the normalised layers", "mean sd of the function on the grid")
    style.legend(ax, loc="upper left", ncols=3)


def _architectures(ax: Axes, nll: Mapping[str, Mapping[str, float]], alone: Mapping[str, float], seeds: int) -> None:
    style.plain(ax)
    places = np.arange(len(nll))
    ways = ("θ̃, single λ", "θ̃, multiple λ", "θ*, single λ", "θ*, multiple λ")
    shown = {
        way: (places + 0.12 * (number - 1.5), [each[way] for each in nll.values()]) for number, way in enumerate(ways)
    }
    plots.lines(ax, shown, dashes="", markers="sDo^", markersize=6)
    ax.plot(places, list(alone.values()), "_", color=style.INK, markersize=26, label="network alone")
    ax.set_xticks(places, list(nll))
    ax.set_xlim(-0.5, len(nll) - 0.5)
    ax.set_ylim(0, 1.4 * max(max(each.values()) for each in nll.values()))
    style.label(
        ax, f"Image classifiers of about 45,000 weights,\nprior precision by the evidence (mean of {seeds} seeds)"
    )
    style.label(ax, y="test NLL, nats per image")
    style.legend(ax, loc="upper left", ncols=3)


def against_map(groups: Mapping[str, Differences], heading: str) -> Figure:
    """Draw the NLL of each way to predict minus that of MAP, set by set: one panel per group.

    Args:
        groups: Differences by name of the group, such as a network's depth.
        heading: Heading of the figure.
    """
    sets = list(dict.fromkeys(name for ways in groups.values() for by_set in ways.values() for name in by_set))
    every = list(dict.fromkeys(way for ways in groups.values() for way in ways))
    figure, axes = style.panels(1, len(groups), 5.2, 1.4 + 0.42 * len(sets), sharey=True)
    for ax, (name, ways) in zip(axes.flat, groups.items(), strict=True):
        ax.axvline(0, color=style.GREY, linewidth=1)
        for way, by_set in ways.items():
            if not by_set:
                continue
            number = every.index(way)
            heights = [sets.index(name) - 0.35 + 0.7 / max(1, len(every) - 1) * number for name in by_set]
            values, errors = zip(*by_set.values(), strict=True)
            how: dict[str, Any] = {"color": style.WAYS[number % 7], "fmt": "^v<os*D"[number % 7]}
            ax.errorbar(values, heights, xerr=errors, label=way, markersize=5, elinewidth=0.8, **how)
        ax.set_xscale("symlog", linthresh=0.1)
        ax.xaxis.set_major_locator(FixedLocator([-1, -0.3, -0.1, 0, 0.1, 0.3, 1, 3]))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set_yticks(range(len(sets)), [name.replace("_", " ") for name in sets])
        ax.set_ylim(len(sets) - 0.5, -0.5)
        style.label(
            ax, name, "test NLL minus that of MAP, nats\n(left of the line is better; bars: one standard error)"
        )
    style.legend_below(figure, axes[0, 0], 4)
    return style.title(figure, heading)


def evidence_of_widths(
    curves: Mapping[str, Any],
    sweeps: Mapping[str, Mapping[int, Sequence[float]]],
    sizes: Mapping[int, float],
    heading: str,
) -> Figure:
    """Draw two fits to the same points above; below, quantities against the number of hidden units.

    Args:
        curves: Inputs "x" (G,), the true function "sine" (G,), points "data" (2, N), and "bands": "mean" and "sd" (G,)
            by name.
        sweeps: Values, one per seed, by quantity and width.
        sizes: Number of parameters by width.
        heading: Heading of the figure.
    """
    figure, axes = style.panels(2, 2, 4.6, 3.0)
    for ax, (name, shown), tint in zip(axes[0], curves["bands"].items(), (style.ORANGE, style.BLUE), strict=True):
        fit = plots.Band(curves["x"], shown["mean"], shown["sd"])
        plots.band(ax, fit, tint, tuple(curves["data"]), curves["sine"], widths=(2,))
        scale_to(ax, curves["data"][1], 0.6)
        style.label(ax, f"{name} (band with noise)", "input x")
    style.label(axes[0, 0], y="output y")
    style.legend(axes[0, 1], loc="best")
    for ax, (name, by_width) in zip(axes[1], sweeps.items(), strict=True):
        for values in zip(*by_width.values(), strict=True):
            plots.lines(ax, {"_": (list(by_width), values)}, markers="o", color=style.BLUE, alpha=0.8)
        style.ticks(ax, list(by_width))
        style.label(ax, f"{name} against the width", "hidden units")
    dashed = {"number of parameters": (list(sizes), list(sizes.values()))}
    top = max(max(values) for values in next(iter(sweeps.values())).values())
    plots.lines(axes[1, 0], dashed, dashes="--", color=style.GREY, linewidth=1)
    axes[1, 0].set_ylim(0, 3 * top)
    style.legend(axes[1, 0], loc="upper right")
    style.label(axes[1, 1], y="nats")
    return style.title(figure, heading)


def learned_precisions(
    courses: Mapping[str, Mapping[str, Any]], grid: Sequence[Mapping[str, float]], heading: str
) -> Figure:
    """Draw three panels: log evidence by epoch, precisions of the weights by epoch, test NLL against fixed precisions.

    Args:
        courses: ``initial`` precision, ``epochs``, ``log_evidence`` and ``precisions`` by parameter (each a list over
            epochs), and the ``test`` NLL, by name. Those named by their initial precision are drawn in the panel of
            precisions.
        grid: Points with ``precision``, ``validation`` and ``test`` NLL.
        heading: Heading of the figure.
    """
    figure, (axes,) = style.panels(1, 3, 4.6, 4.2)
    start = {name: f"{course['initial']:g}" for name, course in courses.items()}
    words = {name: f"from {start[name]}" + ("" if name == start[name] else f", {name}") for name in courses}
    dashes: dict[str, Any] = dict(zip(courses, style.DASHES * len(courses), strict=False))
    plain = [name for name in courses if name == start[name]]

    evidence = {words[name]: (course["epochs"], course["log_evidence"]) for name, course in courses.items()}
    plots.lines(axes[0], evidence, dashes={words[name]: dash for name, dash in dashes.items()}, linewidth=1.6)
    style.label(axes[0], "Log evidence, nats per image", "epoch")
    style.legend(axes[0], title="initial precision", title_fontsize=8)

    names = list(courses[plain[0]]["precisions"]) if plain else []
    names = ([label for label in names if label.endswith("weight")] or names)[:8]
    layers = style.tints(names)
    for name in plain:
        course = courses[name]
        shown = {label: ([0, *course["epochs"]], [course["initial"], *course["precisions"][label]]) for label in names}
        plots.lines(axes[1], shown, layers, dashes[name], linewidth=1.6)
    axes[1].set_yscale("log")
    style.label(axes[1], "Precision of each layer's weights", "epoch (0: initial)")
    handles = [Line2D([], [], color=tint, label=label) for label, tint in layers.items()]
    handles += [Line2D([], [], color=style.GREY, linestyle=dashes[name], label=words[name]) for name in plain]
    style.legend(axes[1], handles=handles, ncols=2)

    fixed = {"one fixed precision": ([point["precision"] for point in grid], [point["test"] for point in grid])}
    plots.lines(axes[2], fixed, markers="o", color=style.ORANGE)
    chosen = min(grid, key=lambda point: point["validation"])
    ring: dict[str, Any] = {"color": style.INK, "markersize": 9, "fillstyle": "none"}
    axes[2].plot([chosen["precision"]], [chosen["test"]], "o", label="… chosen on validation", **ring)
    for number, name in enumerate(plain):
        level: dict[str, Any] = {"color": style.BLUE, "linewidth": 1.4, "linestyle": dashes[name]}
        axes[2].axhline(courses[name]["test"], label="_" if number else "learned, one for each tensor", **level)
    axes[2].set(xscale="log", yscale="log")
    style.label(axes[2], "Test NLL of the trained weights, nats", "fixed prior precision")
    style.legend(axes[2])
    return style.title(figure, heading)


def logistic_planes(
    posterior: tuple[tuple[np.ndarray, np.ndarray], Mapping[str, np.ndarray], np.ndarray],
    maps: Mapping[str, np.ndarray],
    axes: tuple[np.ndarray, np.ndarray],
    x: np.ndarray,
    y: np.ndarray,
) -> Figure:
    """Draw densities over the weights in the first panel, then one map of probabilities for each way to predict.

    Args:
        posterior: Values of both weights (G1,) and (G2,), densities (G2, G1) by name, the first of them filled, and
            the mode (2,).
        maps: Probabilities (M2, M1) of the second class, by title.
        axes: Values of both inputs, (M1,) and (M2,).
        x: Training inputs (N, 2).
        y: Training targets (N,), 0 or 1.
    """
    figure, grid = style.panels(1, 1 + len(maps), 3.6, 3.7)
    ax, (plane, densities, mode) = grid[0, 0], posterior
    for number, (name, density) in enumerate(densities.items()):
        levels = density.max() * np.array([0.01, 0.1, 0.5, 0.9])
        if number == 0:
            ax.contourf(*plane, density, levels=[*levels, density.max()], cmap=style.GREY_DENSITY, alpha=0.7)
            ax.fill_between([], [], color=style.GREY, label=name)
        else:
            ax.contour(*plane, density, levels=levels, colors=style.BLUE, linewidths=1.2)
            ax.plot([], [], color=style.BLUE, label=name)
    ax.plot(*mode, "x", color=style.ORANGE, markersize=7, markeredgewidth=2, label="mode")
    style.label(ax, "posterior over the weights", "weight 1", "weight 2")
    style.legend(ax, loc="lower left")
    for ax, (name, probability) in zip(grid[0, 1:], maps.items(), strict=True):
        image = plots.class_map(ax, axes, probability, x, y)
        style.label(ax, name, "input 1")
    style.label(grid[0, 1], y="input 2")
    style.colour_bar(figure, image, grid[0, 1:], "probability of the class of the triangles", shrink=0.85)
    return style.title(
        figure, "Logistic regression: the posterior and its Gaussian approximation, and the predictions of each"
    )


def predictives(
    data: Mapping[str, Any], scores: Mapping[str, Mapping[str, tuple[float, float]]], heading: str
) -> Figure:
    """Draw a row per data set: validation NLL against the prior precision, and test NLL against OOD AUROC.

    Args:
        data: Candidate "precisions" (G,), and by data set the "curves" of validation NLL (one number for a way without
            precisions) and the "chosen" precision by way to predict, and the names of the data "outside".
        scores: Test NLL and AUROC by data set and way to predict; the colours of the ways are in this order.
        heading: Heading of the figure.
    """
    figure, axes = style.panels(len(scores), 2, 5.2, 3.5)
    precisions = data["precisions"]
    for (name, points), (left, right) in zip(scores.items(), axes, strict=True):
        how: dict[str, dict[str, Any]] = {
            way: {"color": style.WAYS[n % 7], "marker": "so^Dv<*"[n % 7]} for n, way in enumerate(points)
        }
        chosen = data["chosen"][name]
        for way, values in data["curves"][name].items():
            tint = how[way]["color"]
            if len(values) == 1:
                left.axhline(values[0], linestyle="--", linewidth=1.2, color=tint)
                continue
            plots.lines(left, {way: (precisions, values)}, **how[way])
            near = min(range(len(values)), key=lambda n: abs(precisions[n] - chosen[way]))
            left.plot(precisions[near], values[near], "o", markersize=12, fillstyle="none", color=tint)
        left.set(xscale="log", yscale="log")
        words = "prior precision (a ring marks the one that validation chooses)"
        style.label(left, f"{name}: choice of the precision", words, "validation NLL, nats")
        for way, (nll, auroc) in points.items():
            plots.lines(right, {way: ([nll], [auroc])}, dashes="", markersize=8, **how[way])
        right.set_xscale("log")
        right.xaxis.set_major_locator(FixedLocator(LOSSES))
        right.xaxis.set_major_formatter("{x:g}")
        right.xaxis.set_minor_formatter(NullFormatter())
        how_better: dict[str, Any] = {"va": "top", "fontsize": 9, "color": style.GREY, "style": "italic"}
        right.annotate("better", (0.04, 0.96), xycoords="axes fraction", **how_better)
        right.margins(0.15)
        sets = f"{name}: test images; {' and '.join(data['outside'][name])} out of distribution"
        style.label(right, sets, "test NLL, nats (towards the left is better)", "OOD AUROC")
    style.legend_below(figure, axes[0, 1], 2)
    return style.title(figure, heading)


def error_curves(
    curves: Mapping[str, Mapping[str, tuple[Sequence[int], Sequence[float]]]],
    wanted: Mapping[str, float],
    heading: str,
) -> Figure:
    """Draw the error of estimates against the number of samples: one panel per estimate, one curve per way to make it.

    Args:
        curves: Numbers of samples (S,) and relative errors (S,) by panel and way.
        wanted: Tolerated error by panel, a dashed line.
        heading: Heading of the figure.
    """
    figure, axes = style.panels(1, len(curves), 4.6, 3.4, sharex=True)
    for ax, (name, ways) in zip(axes[0], curves.items(), strict=True):
        plots.lines(ax, ways, markers="o", markersize=6)
        style.ticks(ax, next(iter(ways.values()))[0])
        ax.axhline(wanted[name], color=style.GREY, linestyle="--", linewidth=1, label="tolerated")
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        ax.minorticks_off()
        style.label(ax, name, "posterior samples")
    style.label(axes[0, 0], y="relative error, mean over seeds")
    style.legend(axes[0, 0])
    return style.title(figure, heading)


#: Names of the ways to choose a subnetwork, where they differ from those in the code.
_CHOICES = {"swag": "SWAG variance", "function_space": "function space", "diag_variance": "diagonal Laplace"}


def subnetworks(
    bands: Mapping[str, Mapping[str, Sequence[float]]],
    points: Mapping[str, Sequence[float]],
    kept: tuple[Sequence[float], Mapping[str, Sequence[float | None]]],
    shifts: Mapping[str, Mapping[str, Any]],
) -> Figure:
    """Draw error bars in the upper row; the share of them that is kept, and NLL and accuracy against the shift below.

    Args:
        bands: Inputs "x", "mean" and standard deviation "sd" of the function, without noise, by title.
        points: The data, "x" and "y".
        kept: Fractions of the weights, and the share of the standard deviation between the clusters by choice.
        shifts: "levels", and "nll" and "accuracy" at each of them by method, by data set.
    """
    figure, axes = style.panels(2, max(len(bands), 1 + 2 * len(shifts)), 3.4, 3.1)
    for ax, (name, shown) in zip(axes[0], bands.items(), strict=False):
        plots.band(ax, plots.Band(shown["x"], shown["mean"], shown["sd"]), style.BLUE, (points["x"], points["y"]))
        scale_to(ax, points["y"], 0.4)
        style.label(ax, name, "input x")
    ax, percent = axes[1, 0], [100 * fraction for fraction in kept[0]]
    shares = {
        _CHOICES.get(choice, choice): (percent, [np.nan if value is None else value for value in values])
        for choice, values in kept[1].items()
    }
    plots.lines(ax, shares, markers=style.MARKERS, linewidth=1.6)
    ax.axhline(1, color=style.GREY, linewidth=1, linestyle=":")
    ax.set_ylim(-0.05, 1.5)  # with a place for the legend
    style.ticks(ax, percent)
    style.label(ax, "sd between clusters / that of all weights", "share of the weights, %")
    style.legend(ax, loc="upper left", ncols=2)
    methods = list(dict.fromkeys(row for found in shifts.values() for row in found["nll"]))
    tints = style.tints(methods)
    dashes: dict[str, Any] = {
        row: "--" if row.startswith("subnetwork") and "5 %" not in row else "-" for row in methods
    }
    pairs = [(name, found, quantity) for name, found in shifts.items() for quantity in ("nll", "accuracy")]
    for ax, (name, found, quantity) in zip(axes[1, 1:], pairs, strict=False):
        scores = {row: (found["levels"], values) for row, values in found[quantity].items()}
        plots.lines(ax, scores, tints, dashes, ".", markersize=6, linewidth=1.6)
        ax.set_xticks(found["levels"])
        style.label(ax, f"{name}: {'NLL, nats' if quantity == 'nll' else 'accuracy, %'}")
        style.label(ax, x="rotation, degrees" if max(found["levels"]) > 5 else "severity")
    for ax in [*axes[0, len(bands) :], *axes[1, 1 + len(pairs) :]]:
        ax.set_visible(False)
    handles = [Line2D([], [], label=row, color=tints[row], linestyle=dashes[row], marker=".") for row in methods]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(handles) or 1, fontsize=9, frameon=False)
    return style.title(figure, "How much of the uncertainty does a full covariance over a few of the weights keep?")
