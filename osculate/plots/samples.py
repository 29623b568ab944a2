"""The error of an estimate from samples, as their number grows."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from osculate.plots.style import GREY, INK, colour, panels, title


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
