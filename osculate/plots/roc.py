"""ROC curves of scores that tell data of another kind apart: one panel a data set, one curve a score or a method."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from osculate.plots.arrays import arrays
from osculate.plots.style import BLUE, COLOURS, GREEN, GREY, INK, ORANGE, PURPLE, YELLOW, panels, title

_TINTS = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, INK, "#56B4E9")
_DASHES = ("-", "--", ":")
#: Curves whose legend fits into the panel.
INSIDE = 3


@arrays
def roc_curves(
    curves: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]],
    auroc: Mapping[str, Mapping[str, tuple[float, float]]],
    heading: str = "How well do the scores tell data of another kind from test data?",
) -> Figure:
    """Shares that are taken for data of another kind, at every threshold: of that data, against of the test data.

    Args:
        curves: by data set and by score or method, false and true positive rates (T,), as
            ``osculate.metrics.roc_curve`` gives them.
        auroc: for each of them, the area under the curve and its standard error (nan where there is none).
        heading: the figure's sentence.

    Raises:
        ValueError: there is no curve, or one without its area.
    """
    if not curves or not all(curves.values()):
        raise ValueError("no ROC curve to draw: pass at least one for each data set.")
    for name, rows in curves.items():
        if missing := [label for label in rows if label not in auroc.get(name, {})]:
            raise ValueError(f"the curves {missing} of {name!r} have no AUROC: give each (value, standard error).")
    every = list(dict.fromkeys(label for rows in curves.values() for label in rows))
    beside = len(every) > INSIDE
    columns = min(2 if beside else 3, len(curves))
    rows_of_panels = -(-len(curves) // columns)
    figure, axes = panels(
        rows_of_panels, columns, 7.0 if beside else max(4.2, 7.0 / columns), max(4.2, 1.2 + 0.17 * len(every)),
        sharex=True, sharey=True,
    )  # fmt: skip
    for ax, (name, rows) in zip(axes.flat, curves.items(), strict=False):
        ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle="--")
        for label, rates in rows.items():
            index = every.index(label)
            tint = COLOURS.get(label, _TINTS[index % len(_TINTS)])
            style = _DASHES[index // len(_TINTS) % len(_DASHES)]
            ax.plot(*rates, style, color=tint, linewidth=1.5, label=f"{label}: {_estimate(*auroc[name][label])}")
        ax.set(aspect="equal", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        ax.set_title(name, fontsize=10, color=INK, loc="left")
        ax.set_xlabel("false positives: share of the test data", fontsize=9)
        ax.legend(
            title="AUROC ± standard error", title_fontsize=8, fontsize=8, frameon=not beside, edgecolor="none",
            alignment="left",
            **({"loc": "upper left", "bbox_to_anchor": (1.0, 1.02)} if beside else {"loc": "lower right"}),
        )  # fmt: skip
    for ax in axes.flat[len(curves) :]:
        ax.set_visible(False)
    for ax in axes[:, 0]:
        ax.set_ylabel("true positives: share of the other data", fontsize=9)
    title(figure, heading)
    return figure


def _estimate(value: float, error: float) -> str:
    return f"{value:.3f}" if np.isnan(error) else f"{value:.3f} ± {error:.3f}"
