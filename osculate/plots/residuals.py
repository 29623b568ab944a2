"""How a network was fitted to one measurement."""

from matplotlib.figure import Figure

from osculate.plots.arrays import Values
from osculate.plots.style import BLUE, GREY, INK, ORANGE, panels, title


def residuals(misfits: Values, variance: float, step: int, heading: str, estimated: bool = False) -> Figure:
    """The mean squared residual against the step of training, beside the variance of the noise.

    Args:
        misfits: one a step.
        variance: of the noise, in the units of the misfits.
        step: the one whose weights were taken.
        heading: the figure's sentence.
        estimated: whether that variance was found from the same data.

    Raises:
        ValueError: there is no step.
    """
    if not len(misfits):
        raise ValueError("no residuals to draw: pass those of at least one step.")
    figure, axes = panels(1, 1, 6.4, 3.6)
    ax = axes[0, 0]
    ax.plot(range(1, len(misfits) + 1), misfits, color=BLUE, linewidth=1.2, label="mean squared residual of the data")
    ax.axhline(
        variance, color=GREY, linewidth=1.2, linestyle="--", label="variance of the noise" + estimated * ", estimated"
    )
    if step < len(misfits):
        ax.axvline(step, color=ORANGE, linewidth=1.2, label="weights taken here")
    ax.set_yscale("log")
    ax.set_xlabel("step of training", fontsize=9, color=INK)
    ax.set_ylabel("squared units of the data", fontsize=9, color=INK)
    ax.legend(fontsize=8.5, frameon=False)
    title(figure, heading)
    return figure
