"""Densities of two numbers as maps: one row a model, one column a way to approximate."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from osculate.plots.arrays import arrays
from osculate.plots.style import INK, panels, title


@arrays
def posteriors(shown: Mapping[str, Mapping[str, np.ndarray]], reach: float, heading: str) -> Figure:
    """Each map in its own scale, from nothing (white) to its largest value.

    Args:
        shown: by row and column, the mass (G, G) of cells of a square around zero, the first coordinate first.
        reach: half the side of the square.
        heading: the figure's sentence.

    Raises:
        ValueError: there is no map.
    """
    if not shown or not all(shown.values()):
        raise ValueError("no densities to draw: pass at least one map for each row.")
    columns = list(dict.fromkeys(name for by in shown.values() for name in by))
    columns.sort(key=lambda name: name != "exact")
    figure, axes = panels(len(shown), len(columns), 2.1, 2.2)
    for row, (line, (model, by)) in enumerate(zip(axes, shown.items(), strict=True)):
        for ax, name in zip(line, columns, strict=True):
            ax.grid(False)
            ax.set(xticks=[-2, 0, 2], yticks=[-2, 0, 2])
            if name not in by:
                ax.set_visible(False)
                continue
            ends = (-reach, reach, -reach, reach)
            ax.imshow(np.asarray(by[name]).T, cmap="Blues", origin="lower", extent=ends, interpolation="nearest")
            ax.set(xlim=(-3.2, 3.2), ylim=(-3.2, 3.2))
            if row == 0:
                ax.set_title(name, fontsize=10, color=INK)
            if row == len(shown) - 1:
                ax.set_xlabel("first code", fontsize=9)
        line[0].set_ylabel(f"{model}\nsecond code", fontsize=9)
    title(figure, heading)
    return figure
