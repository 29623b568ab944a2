"""Figures of the experiments: values are drawn where they belong, and figures without values are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments import REGISTRY, figures as shared
from experiments.aevb import figures as aevb
from experiments.cost import Curve
from experiments.lae import figures as lae
from experiments.linlap import figures as linlap
from experiments.record import Number, read_record
from osculate import plots
from tests.laws import in_turn

RESULTS = Path(shared.__file__).parent / "results"
SEEN = np.geomspace(1e2, 1e6, 9)
RISING = np.array([-500.0, -300, -200, -150, -120, -110, -105, -102, -100])
COURSE: dict[str, Any] = {
    "epochs": [1, 3],
    "log_evidence": [-2.0, -1.0],
    "precisions": {"0.weight": [5.0, 6.0], "0.bias": [7.0, 8.0]},
    "test": 0.3,
}
COURSES = {
    "0.1": {"initial": 0.1, **COURSE},
    "10": {"initial": 10.0, **COURSE, "test": 0.2},
    "by gradient": {"initial": 10.0, **COURSE, "log_evidence": [-3.0, -2.5]},
}
GRID = [{"precision": 1.0, "validation": 0.4, "test": 0.35}, {"precision": 10.0, "validation": 0.3, "test": 0.4}]


def texts(figure: Figure) -> list[str]:
    return [artist.get_text() for artist in figure.findobj(matplotlib.text.Text)]


def test_costs_are_drawn_on_logarithmic_axes_and_a_cross_marks_where_a_curve_stops() -> None:
    curves = {
        "diag": Curve([4, 16, 64], [[1.0], [16.0], [256.0]], [1, 2, 3], "256 would take long").plain(),
        "mine": Curve([4, 16], [[1.0], [2.0]], [1, 2]).plain(),
    }
    figure = lae.costs({"time": ("time", curves)}, "What it costs")
    (ax,) = figure.axes
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    crosses = [line for line in ax.lines if line.get_marker() == "x"]
    assert [(*line.get_xdata(), *line.get_ydata()) for line in crosses] == [(64, 256.0)]
    words = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"exact diagonal", "mine", "linear growth", "quadratic growth"} <= words


def test_a_score_far_from_all_others_is_told_at_the_edge() -> None:
    scores = {"MAP": (0.43, 0.42), "L2M": (0.54,), "KFAC": (0.45,), "ensemble": (0.41,), "printed": (7.0,)}
    figure = shared.method_scores([Number(f"A: {name}", "NLL", each) for name, each in scores.items()], ["NLL"], "All")
    assert "7 →" in texts(figure)
    assert figure.axes[0].get_xlim()[1] < 1
    near = {**scores, "printed": (0.7,)}
    figure = shared.method_scores([Number(f"A: {name}", "NLL", each) for name, each in near.items()], ["NLL"], "All")
    assert not any("→" in text for text in texts(figure))
    assert figure.axes[0].get_xlim()[1] > 0.7


def test_densities_stand_in_rows_of_models_under_names_of_columns() -> None:
    cells = np.eye(4)
    shown = {"ring": {"Gaussian": cells, "exact": cells}, "corners": {"exact": cells, "Gaussian": cells}}
    axes = aevb.posteriors(shown, 3.2, "two").axes
    assert [ax.get_title() for ax in axes] == ["exact", "Gaussian", "", ""]
    assert [ax.get_xlabel() for ax in axes] == ["", "", "first code", "first code"]
    assert [ax.get_ylabel().split("\n")[0] for ax in axes] == ["ring", "", "corners", ""]


def test_the_planes_of_logistic_regression_share_their_points() -> None:
    axis, points, labels = np.linspace(-1, 1, 5), np.array([[0.0, 0.5], [0.5, 0.0]]), np.array([0, 1])
    density = np.exp(-np.add.outer(axis**2, axis**2))
    posterior = ((axis, axis), {"exact": density, "Gaussian": density**2}, np.zeros(2))
    maps = {"MAP": np.add.outer(axis, axis) / 4 + 0.5, "exact": np.add.outer(axis, axis) / 8 + 0.5}
    figure = linlap.logistic_planes(posterior, maps, (axis, axis), points, labels)
    first, second, third = figure.axes[:3]
    assert [ax.get_title(loc="left") for ax in (first, second, third)] == ["posterior over the weights", "MAP", "exact"]
    assert [line.get_xdata().tolist() for line in second.lines] == [line.get_xdata().tolist() for line in third.lines]


def test_curves_of_errors_stand_beside_what_is_wanted() -> None:
    curves = {"γ": {"one": ([4, 16], [0.1, 0.05]), "two": ([4, 16], [0.02, 0.01])}}
    (ax,) = linlap.error_curves(curves, {"γ": 0.01}, "A heading").axes
    assert len(ax.lines) == 3
    assert set(ax.lines[-1].get_ydata()) == {0.01}


def test_training_is_dashed_in_the_colour_of_its_held_out_line_in_every_panel() -> None:
    groups = {"2 codes": {"VAE": (SEEN, RISING), "wake-sleep": (SEEN, RISING - 5)}, "5 codes": {"VAE": (SEEN, RISING)}}
    training = {"2 codes": {"wake-sleep": (SEEN, RISING + 1)}}
    figure = aevb.curves(groups, "heading", training)
    first, second = figure.axes
    styles = [(line.get_linestyle(), line.get_color()) for line in first.lines]
    assert [style for style, _ in styles] == ["-", "-", "--"]
    assert styles[2][1] == styles[1][1] != styles[0][1] == second.lines[0].get_color()
    np.testing.assert_array_equal(first.lines[2].get_ydata(), RISING + 1)
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == ["VAE", "wake-sleep", "validation", "training"]
    alone = aevb.curves(groups, "heading")
    assert [text.get_text() for text in alone.legends[0].get_texts()] == ["VAE", "wake-sleep"]


def test_a_poor_start_does_not_flatten_a_curve() -> None:
    groups = {"a": {"one": (SEEN, RISING)}, "b": {"one": (SEEN, RISING - 50)}}
    ends = [ax.get_ylim() for ax in aevb.curves(groups, "").axes]
    assert ends[0] == ends[1]  # from the middle of the lower curve, at 10⁴
    assert -180 < ends[0][0] < -170
    assert -100 < ends[0][1] < -95
    (own, other) = (ax.get_ylim() for ax in aevb.curves(groups, "", shared=False).axes)
    np.testing.assert_allclose(np.subtract(own, other), 50)
    start = {"a": {"one": ([0, *SEEN], [-1e6, *RISING])}}
    assert aevb.curves(start, "").axes[0].get_ylim()[0] > -130


def test_a_level_curve_has_an_axis_of_some_height() -> None:
    low, high = aevb.curves({"a": {"one": ([1, 2], [3.0, 3.0])}}, "").axes[0].get_ylim()
    assert low < 3 < high


def test_codes_that_are_not_quantised_are_dashed_in_the_colour_of_their_method() -> None:
    lines = {"AE": ([8, 16], [4.0, 3.0]), "VAE": ([8, 16, 24], [5.0, 3.5, 3.0])}
    (ax,) = aevb.rate_distortion(lines, "heading", {"VAE": 2.5}).axes
    auto, variational, dashed = ax.lines
    np.testing.assert_array_equal(variational.get_xydata(), np.transpose(lines["VAE"]))
    assert dashed.get_color() == variational.get_color() != auto.get_color()
    assert set(dashed.get_ydata()) == {2.5}
    assert ax.get_ylim()[0] == 0
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["AE", "VAE", "code not quantised"]


def test_dots_say_what_lies_far_below() -> None:
    values = {"a": {"MAP": (-500.0, 1.0), "linearised, full": (-1.0, 0.1), "deep ensemble": (-1.1, 0.1)}}
    figure = shared.dots(values, "nats", "a heading", {"a": {"deep ensemble": -0.9, "dropout": -2.0}})
    (ax,) = [ax for ax in figure.axes if ax.get_visible()]
    assert [text.get_text() for text in ax.texts] == ["← -500"]
    assert ax.get_xlim()[0] > -5
    with pytest.raises(ValueError, match="no values"):
        shared.dots({"a": {}}, "nats", "a heading")


def test_runs_start_at_their_initial_precision_and_variants_are_in_the_first_panel_only(tmp_path: Path) -> None:
    figure = linlap.learned_precisions(COURSES, GRID, "heading")
    evidence, precisions, against = figure.axes
    assert [list(line.get_ydata()) for line in evidence.lines] == [[-2.0, -1.0], [-2.0, -1.0], [-3.0, -2.5]]
    words = [text.get_text() for text in evidence.get_legend().get_texts()]
    assert words == ["from 0.1", "from 10", "from 10, by gradient"]
    assert [list(line.get_ydata()) for line in precisions.lines] == [[0.1, 5.0, 6.0], [10.0, 5.0, 6.0]]
    assert [list(line.get_xdata()) for line in precisions.lines] == [[0, 1, 3]] * 2
    np.testing.assert_allclose(against.lines[0].get_ydata(), [0.35, 0.4])
    assert against.lines[1].get_xdata() == [10.0]
    assert [line.get_ydata()[0] for line in against.lines[2:]] == [0.3, 0.2]
    assert plots.save(figure, tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_costs_without_values_are_refused() -> None:
    with pytest.raises(ValueError, match="no curve"):
        lae.costs({"time": ("time", {"diag": Curve().plain()})}, "costs")


@pytest.mark.parametrize(
    "draw",
    [
        lambda: aevb.curves({"a": {"VAE": (torch.arange(1, 4), torch.rand(3))}}, "heading"),
        lambda: aevb.rate_distortion({"VAE": (torch.arange(1, 4), torch.rand(3))}, "heading", {"VAE": 0.1}),
    ],
)
def test_figures_of_tensors_are_written(draw: Callable[[], Figure], tmp_path: Path) -> None:
    assert plots.save(draw(), tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def series(ax: Any) -> dict[str, str]:
    """The colour of each labelled line, without those of a band and its mean."""
    found = {}
    for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
        line = handle.lines[0] if isinstance(handle, ErrorbarContainer) else handle
        if isinstance(line, Line2D) and name != "mean":
            found[name] = to_hex(line.get_color())
    return found


@pytest.mark.parametrize("name", in_turn(path.stem for path in sorted(RESULTS.glob("*.json")) if path.stem in REGISTRY))
def test_series_of_a_figure_differ_in_colour(name: str) -> None:
    for ax in REGISTRY[name].draw(read_record(RESULTS / f"{name}.json")).axes:
        assert len(set(series(ax).values())) == len(series(ax)), series(ax)


def test_two_series_of_one_colour_are_found() -> None:
    ax = Figure().subplots()
    for name in ("a", "b"):
        ax.plot([0, 1], color="red", label=name)
    assert len(series(ax)) == 2
    assert len(set(series(ax).values())) == 1


def test_records_hold_no_faces() -> None:
    """Pictures of CelebA and the Frey Face are not ours to give away, nor is what a network makes of them."""
    for path in RESULTS.glob("*.json"):
        if path.stem in REGISTRY:
            assert not {"frey_face", "celeba", "celeba64"} & set(read_record(path).findings.data), path.stem
