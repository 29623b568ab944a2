"""Figures of the linearised Laplace tutorial and its experiments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter

from osculate.plots.maps import LEVELS
from osculate.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, YELLOW, colour, panels, quiet, title

#: Colour and marker of each way to choose the precision.
_ADAPTED_WAYS = {
    "θ̃, single λ": (ORANGE, "s"),
    "θ̃, multiple λ": (YELLOW, "D"),
    "θ*, single λ": (BLUE, "o"),
    "θ*, multiple λ": (GREEN, "^"),
}


def adapted(data: Mapping[str, Any]) -> Figure:
    """Bands of a toy for several precisions, its error bars against the scale of weights, and NLL by architecture.

    Args:
        data: "grid" and "truth" (G,), "points" x and y, "bands" mean and sd by title; "scales" (K,) and "deviation" by
            prior, one list (K,) a seed; "nll" by architecture and way, "map" by architecture.

    Raises:
        ValueError: there is no band.
    """
    if not data["bands"]:
        raise ValueError("no band to draw: pass at least one predictive by its title.")
    count = len(data["bands"])
    columns = -(-count // 2)
    figure = Figure(figsize=(3.6 * columns, 9.2), layout="constrained", facecolor="white")
    grid = figure.add_gridspec(3, 2 * columns, height_ratios=(1, 1, 1.25))
    first: Axes | None = None
    for number, (name, band) in enumerate(data["bands"].items()):
        row, column = divmod(number, columns)
        ax = figure.add_subplot(grid[row, 2 * column : 2 * column + 2], sharex=first, sharey=first)
        first = first or ax
        _adapted_band(ax, data, band, ORANGE if "θ̃" in name else BLUE if "θ*" in name else PURPLE)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
    assert first is not None
    y = np.asarray(data["truth"])
    first.set_ylim(y.min() - 1.2 * np.ptp(y), y.max() + 1.2 * np.ptp(y))
    first.legend(fontsize=8, frameon=False, loc="upper left", ncols=2)
    _adapted_scales(figure.add_subplot(grid[2, :columns]), data["scales"], data["deviation"])
    _adapted_architectures(figure.add_subplot(grid[2, columns:]), data["nll"], data["map"])
    title(figure, "A network is at no mode of its posterior: the evidence there asks for error bars that are too wide")
    return figure


def _adapted_band(ax: Axes, data: Mapping[str, Any], band: Mapping[str, Sequence[float]], tint: str) -> None:
    quiet(ax)
    x, mean, sd = (np.asarray(values) for values in (data["grid"], band["mean"], band["sd"]))
    for width, alpha in ((2, 0.18), (1, 0.32)):
        label = f"± {width} sd"
        ax.fill_between(x, mean - width * sd, mean + width * sd, color=tint, alpha=alpha, linewidth=0, label=label)
    ax.plot(data["points"]["x"], data["points"]["y"], ".", color=GREY, markersize=2, label="data")
    ax.plot(x, data["truth"], "--", color=INK, linewidth=1, label="truth")
    ax.plot(x, mean, color=tint, linewidth=1.5, label="mean")


def _adapted_scales(ax: Axes, scales: Sequence[float], deviation: Mapping[str, Sequence[Sequence[float]]]) -> None:
    quiet(ax)
    for (name, runs), tint in zip(deviation.items(), (BLUE, GREEN), strict=True):
        for number, values in enumerate(runs):
            ax.plot(scales, values, "o-", color=tint, markersize=4, linewidth=1.4, label=name if not number else None)
    ax.set_xscale("log", base=2)
    ax.set_xticks(scales, [f"{k:g}" for k in scales])
    ax.set_ylim(0, 1.3 * max(max(values) for runs in deviation.values() for values in runs))
    ax.set_xlabel("factor k on the weights of the normalised layers", fontsize=9)
    ax.set_ylabel("mean sd of the function on the grid", fontsize=9)
    ax.set_title(
        "The factor does not change the network\n(toy, evidence at θ*, a line a seed)", fontsize=10, loc="left"
    )
    ax.legend(fontsize=8, frameon=False, loc="upper left", ncols=3)


def _adapted_architectures(ax: Axes, nll: Mapping[str, Mapping[str, float]], alone: Mapping[str, float]) -> None:
    quiet(ax)
    places = np.arange(len(nll))
    for number, (way, (tint, marker)) in enumerate(_ADAPTED_WAYS.items()):
        values = [each[way] for each in nll.values()]
        ax.plot(places + 0.12 * (number - 1.5), values, marker, color=tint, markersize=6, label=way)
    ax.plot(places, list(alone.values()), "_", color=INK, markersize=26, label="network alone")
    ax.set_xticks(places, list(nll))
    ax.set_xlim(-0.5, len(nll) - 0.5)
    ax.set_ylim(0, 1.4 * max(max(each.values()) for each in nll.values()))
    ax.set_ylabel("test NLL, nats an image", fontsize=9)
    ax.set_title("Image classifiers of about 45,000 weights,\nprior precision by the evidence", fontsize=10, loc="left")
    ax.legend(fontsize=8, frameon=False, loc="upper left", ncols=3)


_MAP_TINTS = (ORANGE, YELLOW, PURPLE, BLUE, GREEN, INK, GREY)
_MAP_MARKERS = "^v<os*D"

#: By way to predict and set: a mean difference, and its standard error.
Differences = Mapping[str, Mapping[str, tuple[float, float]]]


def against_map(groups: Mapping[str, Differences], heading: str) -> Figure:
    """One panel a group: of each way to predict and each set, the NLL less that of MAP.

    Args:
        groups: by name, such as a network's depth.
        heading: the figure's sentence.

    Raises:
        ValueError: there is nothing to draw.
    """
    if not any(by_set for ways in groups.values() for by_set in ways.values()):
        raise ValueError("no difference to draw: pass at least one way to predict with one set.")
    sets = list(dict.fromkeys(name for ways in groups.values() for by_set in ways.values() for name in by_set))
    figure, axes = panels(1, len(groups), 5.2, 1.4 + 0.42 * len(sets), sharey=True)
    for ax, (name, ways) in zip(axes.flat, groups.items(), strict=True):
        _against_map_panel(ax, ways, sets)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ax.set_xlabel(
            "test NLL less that of MAP, nats\n(left of the line is better; bars: one standard error)", fontsize=9
        )
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    title(figure, heading)
    return figure


def _against_map_panel(ax: Axes, ways: Differences, sets: list[str]) -> None:
    ax.axvline(0, color=GREY, linewidth=1)
    step = 0.7 / max(1, len(ways) - 1)
    for number, (way, by_set) in enumerate(ways.items()):
        places = [sets.index(name) - 0.35 + step * number for name in by_set]
        values, errors = [v for v, _ in by_set.values()], [e for _, e in by_set.values()]
        tint, marker = (
            _MAP_TINTS[number % len(_MAP_TINTS)],
            _MAP_MARKERS[number % len(_MAP_MARKERS)],
        )
        style: dict[str, Any] = {"color": tint, "marker": marker, "markersize": 5, "elinewidth": 0.8, "linestyle": ""}
        ax.errorbar(values, places, xerr=errors, label=way, **style)
    ax.set_xscale("symlog", linthresh=0.1)
    ax.xaxis.set_major_locator(FixedLocator([-1, -0.3, -0.1, 0, 0.1, 0.3, 1, 3]))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_yticks(range(len(sets)), [name.replace("_", " ") for name in sets])
    ax.set_ylim(len(sets) - 0.5, -0.5)


def evidence_of_widths(
    curves: Mapping[str, Any],
    sweeps: Mapping[str, Mapping[int, Sequence[float]]],
    sizes: Mapping[int, float],
    heading: str,
) -> Figure:
    """Two fits to the same points above; below, quantities against the number of hidden units.

    Args:
        curves: inputs "x" (G,), the true function "sine" (G,), points "data" (2, N), and "bands": by name "mean" and
            "sd" (G,).
        sweeps: by quantity and width, a value a seed.
        sizes: number of parameters by width.
        heading: the figure's sentence.

    Raises:
        ValueError: not two fits, or not two quantities.
    """
    if len(curves["bands"]) != 2 or len(sweeps) != 2:
        raise ValueError(f"two fits and two quantities are drawn, got {len(curves['bands'])} and {len(sweeps)}.")
    figure, axes = panels(2, 2, 4.6, 3.0)
    for ax, (name, band), tint in zip(axes[0], curves["bands"].items(), (ORANGE, BLUE), strict=True):
        _evidence_fit(ax, curves, band, tint)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ax.set_xlabel("input x", fontsize=9)
    axes[0, 0].set_ylabel("output y", fontsize=9)
    axes[0, 1].legend(fontsize=8, frameon=False, loc="best")
    for ax, (name, by_width) in zip(axes[1], sweeps.items(), strict=True):
        _evidence_sweep(ax, by_width)
        ax.set_title(f"{name} against the width", fontsize=10, color=INK, loc="left")
        ax.set_xlabel("hidden units", fontsize=9)
    axes[1, 0].plot(list(sizes), list(sizes.values()), "--", color=GREY, linewidth=1, label="number of parameters")
    top = max(max(values) for values in next(iter(sweeps.values())).values())
    axes[1, 0].set_ylim(0, 3 * top)
    axes[1, 0].legend(fontsize=8, frameon=False, loc="upper right")
    axes[1, 1].set_ylabel("nats", fontsize=9)
    title(figure, heading)
    return figure


def _evidence_fit(ax: Axes, curves: Mapping[str, Any], band: Mapping[str, Sequence[float]], tint: str) -> None:
    x, middle, sd = np.array(curves["x"]), np.array(band["mean"]), np.array(band["sd"])
    ax.fill_between(x, middle - 2 * sd, middle + 2 * sd, color=tint, alpha=0.2, linewidth=0, label="± 2 sd, with noise")
    ax.plot(x, middle, color=tint, linewidth=1.8, label="network")
    ax.plot(x, curves["sine"], "--", color=GREY, linewidth=1.2, label="true function")
    ax.plot(*curves["data"], ".", color=INK, markersize=4, label="data")
    low, high = min(curves["data"][1]), max(curves["data"][1])
    ax.set_ylim(low - 0.6 * (high - low), high + 0.6 * (high - low))
    ax.set_xlim(x[0], x[-1])


def _evidence_sweep(ax: Axes, by_width: Mapping[int, Sequence[float]]) -> None:
    widths = list(by_width)
    for values in zip(*by_width.values(), strict=True):
        ax.plot(widths, values, "o-", color=BLUE, markersize=4, linewidth=1.2, alpha=0.8)
    ax.set_xscale("log")
    ax.set_xticks(widths, [str(width) for width in widths])
    ax.minorticks_off()


_LAYERS = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, INK)
_STYLES = ("-", "--", ":", "-.")


def learned_precisions(
    courses: Mapping[str, Mapping[str, Any]], grid: Sequence[Mapping[str, float]], heading: str
) -> Figure:
    """Three panels: log evidence by epoch, precisions of the weights by epoch, test NLL against fixed precisions.

    Args:
        courses: by name, ``initial`` precision, ``epochs``, ``log_evidence`` and ``precisions`` by parameter (each a
            list over epochs), and the ``test`` NLL. Those that are named by their initial precision are drawn in the
            panel of precisions.
        grid: points with ``precision``, ``validation`` and ``test`` NLL.
        heading: the figure's sentence.

    Raises:
        ValueError: there is no course, or no grid.
    """
    if not courses or not grid:
        raise ValueError("nothing to draw: pass at least one course and one point of a grid.")
    figure, axes = panels(1, 3, 4.6, 4.2)
    styles = {name: _STYLES[number % len(_STYLES)] for number, name in enumerate(courses)}
    plain = {name: course for name, course in courses.items() if name == f"{course['initial']:g}"}
    _learned_evidence(axes[0, 0], courses, plain)
    _learned_precisions(axes[0, 1], plain, styles)
    _learned_against_grid(axes[0, 2], plain, grid)
    title(figure, heading)
    return figure


def _learned_label(name: str, course: Mapping[str, Any]) -> str:
    start = f"{course['initial']:g}"
    return f"from {start}" if name == start else f"from {start}, {name}"


def _learned_evidence(ax: Axes, courses: Mapping[str, Mapping[str, Any]], plain: Mapping[str, Any]) -> None:
    tints = dict(zip([name for name in courses if name in plain], (BLUE, GREEN, PURPLE), strict=False))
    others = iter((ORANGE, YELLOW, GREY))
    for number, (name, course) in enumerate(courses.items()):
        tint = tints.get(name) or next(others, INK)
        style = _STYLES[number % len(_STYLES)]
        ax.plot(
            course["epochs"],
            course["log_evidence"],
            style,
            color=tint,
            linewidth=1.6,
            label=_learned_label(name, course),
        )
    ax.set_title("Log evidence, nats per image", fontsize=10, color=INK, loc="left")
    ax.set_xlabel("epoch", fontsize=9)
    ax.legend(fontsize=8, frameon=False, title="initial precision", title_fontsize=8)


def _learned_precisions(ax: Axes, plain: Mapping[str, Mapping[str, Any]], styles: Mapping[str, Any]) -> None:
    names: list[str] = []
    for name, course in plain.items():
        weights = [label for label in course["precisions"] if label.endswith("weight")] or list(course["precisions"])
        names = weights[: len(_LAYERS)]
        for label, tint in zip(names, _LAYERS, strict=False):
            values = [course["initial"], *course["precisions"][label]]
            ax.plot([0, *course["epochs"]], values, styles[name], color=tint, linewidth=1.6)
    ax.set(yscale="log")
    ax.set_title("Precision of each layer's weights", fontsize=10, color=INK, loc="left")
    ax.set_xlabel("epoch (0: as given)", fontsize=9)
    handles = [Line2D([], [], color=tint, label=label) for label, tint in zip(names, _LAYERS, strict=False)]
    handles += [Line2D([], [], color=GREY, linestyle=styles[name], label=f"from {name}") for name in plain]
    ax.legend(handles=handles, fontsize=8, frameon=False, ncols=2)


def _learned_against_grid(
    ax: Axes, plain: Mapping[str, Mapping[str, Any]], grid: Sequence[Mapping[str, float]]
) -> None:
    precisions = [point["precision"] for point in grid]
    ax.plot(
        precisions, [point["test"] for point in grid], "o-", color=ORANGE, markersize=4.5, label="one fixed precision"
    )
    chosen = min(grid, key=lambda point: point["validation"])
    ax.plot(
        [chosen["precision"]],
        [chosen["test"]],
        "o",
        color=INK,
        markersize=9,
        fillstyle="none",
        label="… chosen on validation",
    )
    for number, course in enumerate(plain.values()):
        label = "learned, one for each tensor" if not number else None
        ax.axhline(
            course["test"],
            color=BLUE,
            linewidth=1.4,
            linestyle=_STYLES[number % len(_STYLES)],
            label=label,
        )
    ax.set(xscale="log", yscale="log")
    ax.set_title("Test NLL of the trained weights, nats", fontsize=10, color=INK, loc="left")
    ax.set_xlabel("fixed prior precision", fontsize=9)
    ax.legend(fontsize=8, frameon=False)


#: Contours at these shares of the largest density.
LOGISTIC_SHARES = (0.01, 0.1, 0.5, 0.9)


def logistic_planes(
    posterior: tuple[tuple[np.ndarray, np.ndarray], Mapping[str, np.ndarray], np.ndarray],
    maps: Mapping[str, np.ndarray],
    axes: tuple[np.ndarray, np.ndarray],
    x: np.ndarray,
    y: np.ndarray,
) -> Figure:
    """Densities over the weights in the first panel, then one map of probabilities for each way to predict.

    Args:
        posterior: the values of both weights (G1,) and (G2,), densities (G2, G1) by name, the first of them filled,
            and the mode (2,).
        maps: probabilities (M2, M1) of the second class, by title.
        axes: the values of both inputs, (M1,) and (M2,).
        x: training inputs (N, 2).
        y: training targets (N,), 0 or 1.

    Raises:
        ValueError: there is no map.
    """
    if not maps:
        raise ValueError("no probability map to draw: pass at least one, by its title.")
    figure, grid = panels(1, 1 + len(maps), 3.6, 3.7)
    _logistic_densities(grid[0, 0], *posterior)
    for ax, (name, probability) in zip(grid[0, 1:], maps.items(), strict=True):
        image = ax.pcolormesh(*axes, probability, cmap="RdBu_r", vmin=0, vmax=1, alpha=0.6, rasterized=True)
        lines = ax.contour(*axes, probability, levels=LEVELS, colors=INK, linewidths=0.8)
        ax.clabel(lines, fmt="%.2f", fontsize=7)
        for label, marker, tint in ((0, "o", BLUE), (1, "^", ORANGE)):
            ax.plot(*x[y == label].T, marker, color=tint, markeredgecolor="white", markersize=5)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ax.set_xlabel("input 1", fontsize=9)
        ax.grid(False)
    grid[0, 1].set_ylabel("input 2", fontsize=9)
    bar = figure.colorbar(image, ax=grid[0, 1:], location="right", shrink=0.85)
    bar.set_label("probability of the class of the triangles", fontsize=9)
    title(figure, "Logistic regression: the posterior beside its Gaussian, and what each way predicts")
    return figure


def _logistic_densities(
    ax: Axes, axes: tuple[np.ndarray, np.ndarray], densities: Mapping[str, np.ndarray], mode: np.ndarray
) -> None:
    for number, (name, density) in enumerate(densities.items()):
        levels = density.max() * np.array(LOGISTIC_SHARES)
        if number == 0:
            ax.contourf(*axes, density, levels=[*levels, density.max()], cmap="Greys", alpha=0.7)
            ax.fill_between([], [], color="0.5", label=name)
        else:
            ax.contour(*axes, density, levels=levels, colors=BLUE, linewidths=1.2)
            ax.plot([], [], color=BLUE, label=name)
    ax.plot(*mode, "x", color=ORANGE, markersize=7, markeredgewidth=2, label="mode")
    ax.set_title("posterior over the weights", fontsize=10, color=INK, loc="left")
    ax.set_xlabel("weight 1", fontsize=9)
    ax.set_ylabel("weight 2", fontsize=9)
    ax.legend(fontsize=8, frameon=False, loc="lower left")


_WAYS_TINTS = (ORANGE, PURPLE, YELLOW, BLUE, GREEN)
_WAYS_MARKERS = "so^Dv"


@dataclass(frozen=True)
class Predictives:
    """What is shown of one data set.

    Args:
        precisions: candidates of the prior precision (G,).
        curves: validation NLL by way to predict: of each candidate, or one number that does not depend on it.
        chosen: the precision that was chosen, by way to predict.
        points: test NLL and AUROC by way to predict; the colours of the ways are in this order.
        outside: what is to be told from the test data, in words.
    """

    precisions: Sequence[float]
    curves: Mapping[str, Sequence[float]]
    chosen: Mapping[str, float]
    points: Mapping[str, tuple[float, float]]
    outside: str


def predictives(sets: Mapping[str, Predictives], heading: str) -> Figure:
    """One row a data set: validation NLL against the prior precision, and test NLL against OOD AUROC.

    Args:
        sets: by name.
        heading: the figure's sentence.

    Raises:
        ValueError: there is no data set.
    """
    if not sets:
        raise ValueError("no data set to draw: pass at least one by name.")
    figure, axes = panels(len(sets), 2, 5.2, 3.5)
    for (name, shown), (left, right) in zip(sets.items(), axes, strict=True):
        style = {
            way: {
                "color": _WAYS_TINTS[n % len(_WAYS_TINTS)],
                "marker": _WAYS_MARKERS[n % len(_WAYS_MARKERS)],
                "label": way,
            }
            for n, way in enumerate(shown.points)
        }
        _predictives_curves(left, shown, style)
        _predictives_points(right, shown, style)
        left.set_title(f"{name}: choice of the precision", fontsize=10, color=INK, loc="left")
        right.set_title(f"{name}: test images, and {shown.outside} outside", fontsize=10, color=INK, loc="left")
    handles, labels = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    title(figure, heading)
    return figure


def _predictives_curves(ax: Axes, shown: Predictives, style: Mapping[str, dict]) -> None:
    for way, values in shown.curves.items():
        plain = {key: value for key, value in style[way].items() if key == "color"}
        if len(values) == 1:
            ax.axhline(values[0], linestyle="--", linewidth=1.2, **plain)
            continue
        ax.plot(shown.precisions, values, markersize=4, linewidth=1.5, **style[way])
        place = list(shown.precisions).index(min(shown.precisions, key=lambda p: abs(p - shown.chosen[way])))
        ax.plot(shown.precisions[place], values[place], "o", markersize=12, fillstyle="none", **plain)
    ax.set(xscale="log", yscale="log")
    ax.set_xlabel("prior precision (a ring marks the one that validation chooses)", fontsize=9)
    ax.set_ylabel("validation NLL, nats", fontsize=9)


def _predictives_points(ax: Axes, shown: Predictives, style: Mapping[str, dict]) -> None:
    for way, (nll, auroc) in shown.points.items():
        ax.plot(nll, auroc, linestyle="", markersize=8, **style[way])
    ax.set_xscale("log")
    ax.annotate("better", (0.04, 0.96), xycoords="axes fraction", va="top", fontsize=9, color=GREY, style="italic")
    ax.margins(0.15)
    ax.set_xlabel("test NLL, nats (towards the left is better)", fontsize=9)
    ax.set_ylabel("OOD AUROC", fontsize=9)


def error_curves(
    curves: Mapping[str, Mapping[str, tuple[Sequence[int], Sequence[float]]]],
    wanted: Mapping[str, float],
    heading: str,
) -> Figure:
    """One panel an estimate, one curve a way to make it, on logarithmic axes.

    Args:
        curves: by panel and way, the numbers of samples (S,) and the relative errors (S,).
        wanted: by panel, the error that is asked for, a dashed line.
        heading: the figure's sentence.

    Raises:
        ValueError: there is no panel.
    """
    if not curves:
        raise ValueError("no errors to draw: pass at least one panel of them.")
    figure, axes = panels(1, len(curves), 4.6, 3.4, sharex=True)
    for ax, (name, ways) in zip(axes[0], curves.items(), strict=True):
        for index, (way, (samples, errors)) in enumerate(ways.items()):
            ax.loglog(samples, errors, "o-", color=colour(way, index), label=way)
            ax.set_xticks(list(samples), labels=[str(count) for count in samples])
        ax.axhline(wanted[name], color=GREY, linestyle="--", linewidth=1, label="wanted")
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        ax.minorticks_off()
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ax.set_xlabel("posterior samples", fontsize=9)
    axes[0, 0].set_ylabel("relative error, mean over seeds", fontsize=9)
    axes[0, 0].legend(fontsize=8, frameon=False)
    title(figure, heading)
    return figure


#: What a reader calls each choice, and its colour and marker.
_SUBNETWORKS_CHOICES = {
    "swag": ("SWAG variance", BLUE, "o"),
    "function_space": ("function space", GREEN, "s"),
    "magnitude": ("magnitude", YELLOW, "^"),
    "random": ("random", GREY, "v"),
    "diag_variance": ("diagonal Laplace", PURPLE, "D"),
}
_SUBNETWORKS_METHODS = {
    "MAP": (ORANGE, "-"),
    "diagonal": (PURPLE, "-"),
    "MC dropout": (YELLOW, "-"),
    "deep ensemble": (INK, "-"),
    "SWAG": (GREY, "-"),
}


def subnetworks(
    bands: Mapping[str, Mapping[str, Sequence[float]]],
    points: Mapping[str, Sequence[float]],
    kept: tuple[Sequence[float], Mapping[str, Sequence[float | None]]],
    shifts: Mapping[str, Mapping[str, Any]],
) -> Figure:
    """Error bars in the upper row; what is kept of them, and NLL and accuracy against the shift, in the lower one.

    Args:
        bands: by title, the inputs "x", the "mean" and the standard deviation "sd" of the function, without noise.
        points: the data, "x" and "y".
        kept: fractions of the weights, and by choice the share of the standard deviation between the clusters.
        shifts: by data set, the "levels", and by method the "nll" and the "accuracy" at each.

    Raises:
        ValueError: there is no band.
    """
    if not bands:
        raise ValueError("no band to draw: pass at least one, by its title.")
    columns = max(len(bands), 1 + 2 * len(shifts))
    figure, axes = panels(2, columns, 3.4, 3.1)
    for ax, (name, band) in zip(axes[0], bands.items(), strict=False):
        _subnetworks_band(ax, band, points)
        ax.set_title(name, fontsize=10, color=INK, loc="left")
    _subnetworks_kept(axes[1, 0], *kept)
    place = 1
    for name, found in shifts.items():
        for quantity, label in (("nll", "NLL, nats"), ("accuracy", "accuracy, %")):
            ax = axes[1, place]
            _subnetworks_shift(ax, found["levels"], found[quantity])
            ax.set_title(f"{name}: {label}", fontsize=10, color=INK, loc="left")
            ax.set_xlabel("rotation, degrees" if max(found["levels"]) > 5 else "severity", fontsize=9)
            place += 1
    for ax in [*axes[0, len(bands) :], *axes[1, place:]]:
        ax.set_visible(False)
    methods = list(dict.fromkeys(row for found in shifts.values() for row in found["nll"]))
    handles = [Line2D([], [], label=row, markersize=4, marker=".", **_subnetworks_style(row)) for row in methods]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(handles) or 1, fontsize=9, frameon=False)
    title(figure, "How much of the uncertainty does a full covariance over a few of the weights keep?")
    return figure


def _subnetworks_band(ax: Axes, band: Mapping[str, Sequence[float]], points: Mapping[str, Sequence[float]]) -> None:
    x, mean, sd = (np.asarray(band[name]) for name in ("x", "mean", "sd"))
    for width, alpha in ((2, 0.18), (1, 0.32)):
        ax.fill_between(x, mean - width * sd, mean + width * sd, color=BLUE, alpha=alpha, linewidth=0)
    ax.plot(points["x"], points["y"], ".", color=INK, markersize=2)
    ax.plot(x, mean, color=ORANGE, linewidth=1.6)
    low, high = min(points["y"]), max(points["y"])
    ax.set(xlim=(x[0], x[-1]), ylim=(low - 0.4 * (high - low), high + 0.4 * (high - low)))
    ax.set_xlabel("input x", fontsize=9)


def _subnetworks_kept(ax: Axes, fractions: Sequence[float], kept: Mapping[str, Sequence[float | None]]) -> None:
    for select, shares in kept.items():
        label, tint, marker = _SUBNETWORKS_CHOICES.get(select, (select, INK, "o"))
        values = [np.nan if value is None else value for value in shares]
        ax.plot(
            [100 * f for f in fractions], values, marker=marker, color=tint, markersize=5, linewidth=1.6, label=label
        )
    ax.axhline(1, color=GREY, linewidth=1, linestyle=":")
    ax.set(xscale="log", ylim=(-0.05, 1.1))
    ax.set_xticks([100 * f for f in fractions], [f"{100 * f:g}" for f in fractions])
    ax.minorticks_off()
    ax.set_xlabel("share of the weights, %", fontsize=9)
    ax.set_title("sd between clusters, of the full one's", fontsize=10, color=INK, loc="left")
    ax.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(0.0, 0.93))


def _subnetworks_shift(ax: Axes, levels: Sequence[int], rows: Mapping[str, Sequence[float]]) -> None:
    for row, values in rows.items():
        ax.plot(levels, values, marker=".", markersize=6, linewidth=1.6, **_subnetworks_style(row))
    ax.set_xticks(levels)


def _subnetworks_style(row: str) -> dict[str, Any]:
    """Subnetworks are blue, the smaller the more broken the line."""
    if row in _SUBNETWORKS_METHODS:
        tint, line = _SUBNETWORKS_METHODS[row]
        return {"color": tint, "linestyle": line}
    return {"color": BLUE, "linestyle": "-" if row.startswith("subnetwork, 5 %") else "--"}
