"""Figures: what they show follows from the records, and nothing global is touched."""

from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib._pylab_helpers import Gcf
from matplotlib.figure import Figure

from osculate import metrics, plots
from osculate.plots.style import COLOURS
from osculate.tasks.calibration import CalibrationRecord, reliability_bins


def record(classes: int = 3, count: int = 200, sharpness: float = 2.0) -> CalibrationRecord:
    probs = (sharpness * torch.randn(count, classes)).softmax(-1).double()
    targets = torch.randint(classes, (count,))
    scores = {"ece": metrics.ece(probs, targets), "accuracy": metrics.accuracy(probs, targets)}
    return CalibrationRecord(probs, targets, *reliability_bins(probs, targets), scores=scores)


def texts(figure: Figure) -> str:
    return " ".join(artist.get_text() for artist in figure.findobj(matplotlib.text.Text))


def figures() -> dict[str, Callable[[], Figure]]:
    x = np.linspace(-3, 3, 50)
    entropies = {"MAP": np.random.rand(40), "Laplace": np.random.rand(40)}
    outside = {name: {"noise": np.random.rand(30) + 0.5} for name in entropies}
    probabilities = {"MAP": np.full((15, 3), 1 / 3), "Laplace": np.eye(3)[np.arange(15) % 3] * 0.7 + 0.1}
    return {
        "reliability": lambda: plots.reliability_diagram({"MAP": record(), "Laplace": record(sharpness=0.5)}),
        "entropy": lambda: plots.entropy_histograms(
            entropies, outside, 3, {"MAP": {"noise": 0.75}, "Laplace": {"noise": 0.9}}
        ),
        "regression": lambda: plots.regression_bands(
            {name: plots.Band(x, np.sin(x), 0.1 + 0 * x, "a note") for name in ("MAP", "full", "kron")},
            x[::5],
            np.sin(x[::5]),
            [(-1.0, 1.0)],
        ),
        "least sure": lambda: plots.most_uncertain(
            np.random.rand(15, 1, 4, 4), np.arange(15) % 3, probabilities, ("ant", "bee", "cow"), count=7
        ),
        "matrices": lambda: plots.matrices(
            {"true": (np.outer([1, -1, 2], [1, -1, 2]), ""), "diagonal": (np.diag([1.0, 1, 4]), "error 0.5")},
            {"first": 2, "second": 1},
            "A matrix",
        ),
    }


@pytest.mark.parametrize("name", ["reliability", "entropy", "regression", "least sure", "matrices"])
def test_a_figure_is_written_whole_and_leaves_no_global_state(name: str, tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    path = plots.save(figures()[name](), tmp_path / "new" / "figure.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in path.parent.iterdir()] == ["figure.png"]
    assert not Gcf.figs
    assert dict(matplotlib.rcParams) == before


def test_the_reliability_diagram_draws_each_filled_bin_where_it_belongs() -> None:
    one = record()
    figure = plots.reliability_diagram({"MAP": one})
    top, bottom = figure.axes
    points = next(line for line in top.lines if line.get_marker() == "o")
    filled = one.count > 0
    np.testing.assert_allclose(points.get_xdata(), one.confidence[filled])
    np.testing.assert_allclose(points.get_ydata(), one.accuracy[filled])
    assert sum(bar.get_height() for bar in bottom.patches) == len(one.targets)
    assert f"{one.metrics()['ece']:.3f}" in texts(figure)


def test_methods_stand_side_by_side_on_the_same_axes() -> None:
    figure = figures()["reliability"]()
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    entropy = figures()["entropy"]()
    assert entropy.axes[0].get_xlim() == entropy.axes[1].get_xlim() == (0, pytest.approx(np.log(3)))
    assert entropy.axes[0].get_ylim() == entropy.axes[1].get_ylim()
    assert "AUROC 0.75" in texts(entropy)
    assert "AUROC 0.90" in texts(entropy)


def test_entropy_histograms_count_every_image() -> None:
    inside, outside = np.array([0.0, 0.1, np.log(3)]), np.array([np.log(3) + 1e-6, 0.5])
    figure = plots.entropy_histograms({"MAP": inside}, {"MAP": {"noise": outside}}, 3)
    shares = [patch.get_data().values.sum() for patch in figure.axes[0].patches]
    np.testing.assert_allclose(shares, [1.0, 1.0])


def test_regression_panels_hold_bands_data_and_gap() -> None:
    figure = figures()["regression"]()
    visible = [ax for ax in figure.axes if ax.get_visible()]
    assert [ax.get_title(loc="left") for ax in visible] == ["MAP: a note", "full: a note", "kron: a note"]
    wide, narrow = (collection.get_paths()[0].get_extents() for collection in visible[0].collections)
    assert wide.height > narrow.height
    assert "no data" in texts(figure)


def test_the_least_sure_images_are_those_of_highest_entropy() -> None:
    probs = np.array([[0.9, 0.1], [0.5, 0.5], [0.7, 0.3]])
    images = np.zeros((3, 1, 2, 2))
    figure = plots.most_uncertain(images, np.array([0, 1, 1]), {"Laplace": probs}, ("cat", "dog"), count=2)
    words = texts(figure)
    assert [ax.get_title() for ax in figure.axes] == ["is dog", "is dog"]
    assert "Laplace: cat, 50 %" in words
    assert "Laplace: cat, 70 %" in words
    assert "90 %" not in words


def test_matrices_share_one_symmetric_scale_and_show_their_blocks() -> None:
    figure = figures()["matrices"]()
    images = [ax.images[0] for ax in figure.axes if ax.images]
    assert len(images) == 2
    assert {(image.norm.vmin, image.norm.vmax) for image in images} == {(-4.0, 4.0)}
    np.testing.assert_array_equal(np.diag(images[1].get_array()), [1, 1, 4])
    assert len(figure.axes[0].lines) == 2  # one line between two blocks, each way
    assert {"first", "second", "error 0.5"} <= {t.get_text() for t in figure.findobj(matplotlib.text.Text)}


def test_colours_of_methods_differ() -> None:
    assert len({COLOURS[name] for name in ("MAP", "full", "kron", "diag")}) == 4
    assert COLOURS["MAP"] != COLOURS["Laplace"] != COLOURS["Laplace, tuned"]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plots.reliability_diagram({}), "no calibration record"),
        (lambda: plots.regression_bands({}, np.zeros(1), np.zeros(1)), "no predictive band"),
        (lambda: plots.entropy_histograms({"MAP": np.zeros(1)}, {}, 2), r"inside are of \['MAP'\]"),
        (lambda: plots.most_uncertain(np.zeros((1, 1, 2, 2)), np.zeros(1), {}, ("a",)), "no probabilities"),
        (lambda: plots.matrices({}, {}, "matrix"), "no matrix"),
        (
            lambda: plots.matrices({"true": (np.eye(3), "")}, {"all": 2}, "matrix"),
            r"true has shape \(3, 3\), but the blocks have 2",
        ),
        (
            lambda: plots.most_uncertain(np.zeros((2, 1, 2, 2)), np.zeros(2), {"MAP": np.ones((1, 1))}, ("a",)),
            r"of MAP have shape \(1, 1\), not \(2, 1\)",
        ),
    ],
)
def test_nothing_to_draw_is_refused(draw: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()  # type: ignore[operator]


def test_attribution_maps_scale_each_map_and_add_channels() -> None:
    images = torch.rand(2, 1, 3, 4)
    values = torch.randn(2, 3, 4)
    figure = plots.attribution_maps(images, {"one": values, "two": torch.stack([values, values], 1)}, "heading")
    maps = [ax.images[0].get_array() for ax in figure.axes if ax.images and ax.images[0].get_clim() == (-1, 1)]
    assert len(maps) == 4
    for n in (0, 1):
        expected = values[n] / values[n].abs().max()
        for each in (maps[n], maps[2 + n]):
            torch.testing.assert_close(torch.as_tensor(np.asarray(each)), expected)
    outlined = plots.attribution_maps(images, {"one": values}, "heading", [[0, 1, 2, 3], [1, 0, 1, 1]])
    assert [len(ax.patches) for ax in outlined.axes if ax.images] == [1] * 4
    assert outlined.axes[0].patches[0].get_bbox().bounds == (0.5, -0.5, 3, 2)
    with pytest.raises(ValueError, match="no attributions"):
        plots.attribution_maps(images, {}, "heading")
    with pytest.raises(ValueError, match="'one'"):
        plots.attribution_maps(images, {"one": torch.zeros(2, 3, 3)}, "heading")
