"""Dot plots: one row per method, with a dot per seed or a mean with its standard error."""

from collections.abc import Mapping, Sequence
from statistics import mean

from matplotlib.axes import Axes

from osculate.plots.style import tints


def dots(
    ax: Axes,
    values: Mapping[str, Sequence[float]],
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
    colours = colours or tints(order)
    for name, each in values.items():
        height, tint, middle = order.index(name), colours[name], mean(each)
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
