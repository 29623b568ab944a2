"""Colours: they stand in one place, from which all figures take them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import CSS4_COLORS, to_rgb
from matplotlib.figure import Figure

from osculate import plots
from osculate.methods import REGISTRY
from osculate.plots import style

ROOT = Path(plots.__file__).resolve().parents[2]
FILES = [path for folder in ("osculate/plots", "experiments") for path in sorted((ROOT / folder).rglob("*.py"))]
NAMED = {*CSS4_COLORS, *matplotlib.colormaps}


def colours(text: str) -> Iterator[str]:
    """Colours and colour maps that are written out: as hex codes, by name, or as an argument of a colour."""
    for node in ast.walk(ast.parse(text)):
        options: list[tuple[object, ast.expr]] = []
        if isinstance(node, ast.Call):
            options = [(keyword.arg, keyword.value) for keyword in node.keywords]
        elif isinstance(node, ast.Dict):
            options = [(getattr(key, "value", None), value) for key, value in zip(node.keys, node.values, strict=True)]
        elif isinstance(node, ast.Constant) and (node.value in NAMED or re.search("#[0-9A-F]{3}", str(node.value))):
            yield str(node.value)
        for name, value in options:
            if re.search("colors?$|^cmap$", str(name)) and isinstance(value, ast.Constant) and value.value != "none":
                yield f"{name}={value.value!r}"


def test_only_the_style_names_colours() -> None:
    assert style.__file__ in map(str, FILES)
    found = {str(path.relative_to(ROOT)): list(colours(path.read_text(encoding="utf-8"))) for path in FILES}
    assert len(found.pop("osculate/plots/style.py")) > 10
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "line", ['draw("#0072B2")', 'draw(color="0.5")', 'draw({"cmap": "x"})', 'draw("Blues")', 'draw(edgecolor="w")']
)
def test_a_colour_that_is_written_out_is_found(line: str) -> None:
    assert list(colours(line))
    assert not list(colours('draw(color=style.BLUE, markerfacecolor="none", label="MAP")'))


def test_no_two_series_have_one_colour() -> None:
    """As many as any report draws: all methods side by side, and data out of distribution beside test data."""
    for turns in (style.TINTS, style.WAYS, style.SCORES, style.OUTSIDE):
        assert len(set(turns)) == len(turns) > len(REGISTRY)
    for names in (list(REGISTRY), [*REGISTRY, "MAP", "kron"], list(style.COLOURS)[: len(style.TINTS)]):
        assert len(set(style.tints(names).values())) == len(names)
    alike = ["full", "Laplace", "kron", "Laplace, tuned", "online Laplace"]
    assert len(set(style.tints(alike).values())) == 5, "names that share a colour of their own"


def test_histograms_leave_no_data_set_out() -> None:
    ax = Figure().add_subplot()
    names = [f"set {number}" for number in range(10)]
    plots.histogram(ax, [0.1, 0.2], {name: [0.9] for name in names}, [0.0, 0.5, 1.0])
    assert ax.get_legend_handles_labels()[1] == ["test data", *names]
    assert len({patch.get_edgecolor() for patch in ax.patches}) == 11


def test_classes_differ_in_colour() -> None:
    for count in (10, 20, 47, 200):
        assert len({to_rgb(tint) for tint in style.class_tints(count)}) == count


def test_shapes_are_drawn_on_given_axes() -> None:
    ax = Figure().add_subplot()
    image = plots.cells(ax, np.array([[1.0, np.nan]]), ".1f")
    assert [text.get_text() for text in ax.texts] == ["1.0", "–"]
    assert image.get_clim() == (1.0, 1.0)
    ax = Figure().add_subplot()
    plots.histogram(ax, [0.1, 0.2], {"noise": [0.9, 5.0], "letters": [0.6]}, [0.0, 0.5, 1.0], {"noise": 1.0})
    assert [patch.get_data().values.tolist() for patch in ax.patches] == [[1, 0], [0, 1], [0, 1]]
    assert ax.get_legend_handles_labels()[1] == ["test data", "noise (AUROC 1.00)", "letters"]
    ax = Figure().add_subplot()
    plots.reliability(ax, [0.2, 0.5, 0.8], [0.25, 0.0, 0.75], [4, 0, 4], style.BLUE)
    np.testing.assert_array_equal(ax.lines[1].get_xydata(), [[0.2, 0.25], [0.8, 0.75]])
    ax = Figure().add_subplot()
    plots.roc(ax, {"nll": ([0.0, 0.5, 1.0], [0.0, 0.9, 1.0])})
    np.testing.assert_array_equal(ax.lines[1].get_xydata(), [[0, 0], [0.5, 0.9], [1, 1]])
    plots.spread(ax, [0.0, 1.0], [0.0, 0.5], [0.5, 1.0], style.BLUE)
    assert len(ax.collections) == 1


def test_dollars_in_names_are_no_mathematics(tmp_path: Path) -> None:
    figure, axes = style.panels(1, 1, 2.0, 2.0)
    plots.lines(axes[0, 0], {r"$\frac$": ([1.0, 10.0], [1.0, 2.0])})
    axes[0, 0].set_xscale("log")
    style.legend(axes[0, 0])
    style.title(figure, "$5 and $\\x$")
    assert plots.save(figure, tmp_path / "figure.png").stat().st_size > 1000
    assert axes[0, 0].xaxis.get_major_ticks()[0].label1.get_parse_math(), "powers of ten"
