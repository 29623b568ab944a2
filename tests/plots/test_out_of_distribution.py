"""ROC curves, histograms of scores, latent maps and rows of images: what they show, and what they refuse."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.collections import EllipseCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from osculate import metrics, plots
from osculate.autoencoders import LatentMap
from osculate.plots.images import grey_scale

RNG = np.random.default_rng(0)
IMAGES = RNG.random((3, 1, 4, 5)) ** 6  # mostly blank, as handwriting is
COLOUR = RNG.random((2, 3, 4, 4))


def texts(figure: Figure) -> str:
    return " ".join(artist.get_text() for artist in figure.findobj(matplotlib.text.Text))


def rates(shift: float) -> tuple[np.ndarray, np.ndarray]:
    found = metrics.roc_curve(torch.arange(10.0), torch.arange(10.0) + shift)
    return found[0].numpy(), found[1].numpy()


def latent(scale: float) -> LatentMap:
    axes = np.linspace(-1, 1, 5), np.linspace(-2, 2, 4)
    return LatentMap(RNG.random((6, 2)), axes, scale * np.arange(20.0).reshape(4, 5) / 19)


LABELS = np.array([0, 0, 1, 1, 2, 2])
CLASSES = ("ant", "bee", "cow", "dog")


def test_roc_curves_have_a_panel_for_each_set_and_the_same_colour_for_a_score_everywhere() -> None:
    curves = {"noise": {"nll": rates(3), "waic": rates(1)}, "letters": {"waic": rates(5)}}
    auroc = {"noise": {"nll": (0.75, 0.02), "waic": (0.5, float("nan"))}, "letters": {"waic": (0.875, 0.1)}}
    figure = plots.roc_curves(curves, auroc)
    assert [ax.get_title("left") for ax in figure.axes] == ["noise", "letters"]
    lines = [{line.get_label().split(":")[0]: line for line in ax.lines} for ax in figure.axes]
    np.testing.assert_array_equal(lines[0]["nll"].get_xydata(), np.stack(rates(3), 1))
    assert lines[0]["waic"].get_color() == lines[1]["waic"].get_color() != lines[0]["nll"].get_color()
    words = texts(figure)
    assert "nll: 0.750 ± 0.020" in words
    assert "waic: 0.875 ± 0.100" in words
    assert "nan" not in words


def test_many_scores_are_told_apart() -> None:
    names = [f"score {n}" for n in range(12)]
    figure = plots.roc_curves({"noise": {n: rates(1) for n in names}}, {"noise": dict.fromkeys(names, (0.6, 0.1))})
    styles = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines}
    assert len(styles) == 13  # with the diagonal


def test_score_histograms_count_every_score_on_an_axis_of_its_own() -> None:
    inside = {"nll": RNG.normal(-100, 10, 500), "ratio": np.geomspace(1e-3, 1, 400)}
    outside = {"nll": {"noise": RNG.normal(300, 50, 300)}, "ratio": {"noise": np.append(np.ones(300), 1e6)}}
    figure = plots.score_histograms(inside, outside, {"nll": {"noise": 0.99}}, {"ratio": "a ratio"})
    for ax in figure.axes:
        shares = [patch.get_data().values.sum() for patch in ax.patches]
        np.testing.assert_allclose(shares, [1.0, 1.0])
    assert [ax.get_xscale() for ax in figure.axes] == ["linear", "log"]
    assert figure.axes[0].get_xlim()[0] < -100 < 300 < figure.axes[0].get_xlim()[1]
    assert figure.axes[1].get_xlim()[1] < 2, "one extreme score does not set the scale"
    assert "AUROC 0.99" in texts(figure)
    assert "a ratio" in texts(figure)


def test_scores_that_are_all_equal_have_a_histogram() -> None:
    figure = plots.score_histograms({"s": np.full(4, 2.0)}, {"s": {"noise": np.full(3, 2.0)}})
    assert figure.axes[0].get_xlim() == (1.5, 2.5)
    assert [patch.get_data().values.max() for patch in figure.axes[0].patches] == [1.0, 1.0]


def test_latent_maps_share_one_scale() -> None:
    maps = {"sure": latent(0.0), "unsure": latent(3.0)}
    figure = plots.latent_map(maps, LABELS, CLASSES, quantity="σ")
    assert [ax.get_title("left") for ax in figure.axes[:2]] == ["sure", "unsure"]
    assert len({ax.collections[0].get_clim() for ax in figure.axes[:2]}) == 1
    assert figure.axes[1].collections[0].get_clim()[1] == 3.0
    np.testing.assert_allclose(figure.axes[1].collections[0].get_array().ravel()[1:], np.arange(1, 20) * 3 / 19)
    assert texts(figure).count("σ") == 1
    far_apart = plots.latent_map({"one": latent(1.0), "other": latent(1e-3)})
    assert isinstance(far_apart.axes[0].collections[0].norm, LogNorm)
    still = plots.latent_map({"one": latent(0.0)})
    assert still.axes[0].collections[0].get_clim() == (0.0, 1.0)


def test_latent_maps_colour_each_class_and_name_it_where_its_codes_are() -> None:
    one = latent(1.0)
    figure = plots.latent_map({"one": one}, LABELS, CLASSES)
    dots = figure.axes[0].collections[-1]
    np.testing.assert_array_equal(dots.get_offsets(), one.codes)
    tints = [tuple(colour) for colour in dots.get_facecolors()]
    for number, name in enumerate(("ant", "bee", "cow")):  # there is no dog
        assert len({tint for tint, label in zip(tints, LABELS, strict=True) if label == number}) == 1
        word = next(text for text in figure.axes[0].texts if text.get_text() == name)
        np.testing.assert_allclose(word.xy, np.median(one.codes[number == LABELS], 0))
    assert len(set(tints)) == 3
    assert figure.axes[0].get_legend_handles_labels()[1] == ["ant", "bee", "cow"]


def test_latent_maps_need_no_names_and_no_classes() -> None:
    one = latent(1.0)
    numbered = plots.latent_map({"one": one}, torch.from_numpy(LABELS))
    assert numbered.axes[0].get_legend_handles_labels()[1] == ["0", "1", "2"]
    plain = plots.latent_map({"one": one})
    np.testing.assert_array_equal(plain.axes[0].collections[-1].get_offsets(), one.codes)
    assert not plain.legends


def test_latent_maps_show_the_uncertainty_of_codes_and_decoded_examples() -> None:
    one = latent(1.0)
    spread = RNG.random((6, 2))
    indices = np.array([0, 3, 5])
    examples = indices, RNG.random((3, 1, 4, 4)), RNG.random((3, 1, 4, 4))
    figure = plots.latent_map({"one": replace(one, spread=spread, examples=examples)}, LABELS, CLASSES)
    ax = figure.axes[0]
    ellipses = next(each for each in ax.collections if isinstance(each, EllipseCollection))
    np.testing.assert_allclose(ellipses.get_widths(), 2 * spread[:, 0])
    np.testing.assert_array_equal(ellipses.get_offsets(), one.codes)
    assert len(ax.child_axes) == 3
    low, high = ax.get_xlim()
    assert low < one.axes[0][0]
    assert high > one.axes[0][-1]
    ends = [line.get_xydata()[0].tolist() for line in ax.lines if len(line.get_xydata()) == 2]
    assert ends == one.codes[indices].tolist()
    without = replace(one, examples=(indices, np.zeros((3, 7)), np.zeros((3, 7))))
    assert not plots.latent_map({"one": without}).axes[0].child_axes, "vectors are no pictures"


def test_photographs_are_no_negatives_and_nearly_nothing_is_clipped() -> None:
    digits = np.zeros((2, 1, 5, 5))
    digits[..., 2] = 1.0
    faces = RNG.random((2, 1, 9, 9)) * 0.6 + 0.4
    assert grey_scale(digits, 2 * digits - 0.5) == (0.0, 1.0), "ink on paper"
    white, black = grey_scale(faces, faces - 0.5)
    assert white == faces.max()
    assert np.mean(faces - 0.5 < black) <= 0.02
    assert grey_scale(RNG.random((2, 3, 4, 4)) + 0.5)[0] < 1 < grey_scale(RNG.random((2, 3, 4, 4)) + 0.5)[1]


def test_tensors_are_drawn_as_arrays_are() -> None:
    images = torch.rand(2, 1, 4, 4)
    assert plots.image_grid({"row": images.requires_grad_()}, "some").axes
    assert plots.reconstructions(images, {"net": (images, images)}).axes
    assert plots.imputations(images, torch.ones(1, 4, 4).bool(), torch.rand(3, 2, 1, 4, 4), "some").axes
    scores = {"nll": torch.rand(5)}
    assert plots.score_histograms(scores, {"nll": {"noise": torch.rand(5)}}).axes
    rates = torch.linspace(0, 1, 3)
    assert plots.roc_curves({"noise": {"nll": (rates, rates)}}, {"noise": {"nll": (0.5, 0.1)}}).axes
    assert plots.accuracy_against_labels((1, 2), {"net": (torch.rand(2), torch.rand(2))}, "some").axes


def test_reconstructions_stand_under_their_inputs_in_one_scale() -> None:
    deviation = {"a": np.full_like(IMAGES, 0.1), "b": np.full_like(IMAGES, 0.4)}
    figure = plots.reconstructions(IMAGES, {n: (0.5 * IMAGES, d) for n, d in deviation.items()}, ("x", "y", "z"))
    axes = np.array(figure.axes[:15]).reshape(5, 3)
    assert [ax.get_title() for ax in axes[0]] == ["x", "y", "z"]
    assert [line[0].get_ylabel().split("\n")[0] for line in axes] == ["input", "a", "a", "b", "b"]
    low, high = IMAGES.min(), IMAGES.max()
    for n in range(3):
        np.testing.assert_allclose(axes[0, n].images[0].get_array(), (IMAGES[n, 0] - low) / (high - low))
        mean = np.clip((0.5 * IMAGES[n, 0] - low) / (high - low), 0, 1)
        np.testing.assert_allclose(axes[3, n].images[0].get_array(), mean)
        for row, value in ((2, 0.1), (4, 0.4)):
            np.testing.assert_allclose(axes[row, n].images[0].get_array(), value)
            assert axes[row, n].images[0].get_clim() == (0.0, pytest.approx(0.4))


def test_the_deviation_of_a_colour_is_that_over_its_channels() -> None:
    deviation = np.zeros_like(COLOUR)
    deviation[:, 0] = 0.3
    figure = plots.reconstructions(COLOUR, {"a": (COLOUR, deviation)})
    shown = figure.axes[4].images[0].get_array()
    np.testing.assert_allclose(shown, 0.3 / np.sqrt(3))
    assert figure.axes[0].images[0].get_array().shape == (4, 4, 3)


def test_a_grid_of_images_is_in_the_scale_of_its_first_row() -> None:
    figure = plots.image_grid({"data": IMAGES, "model": 3 * IMAGES[:1] - 1}, "Images", columns=2)
    axes = np.array(figure.axes).reshape(2, 2)
    low, high = IMAGES[:2].min(), IMAGES[:2].max()
    expected = np.clip((3 * IMAGES[0, 0] - 1 - low) / (high - low), 0, 1)
    np.testing.assert_allclose(axes[1, 0].images[0].get_array(), expected)
    assert not axes[1, 1].images
    given = plots.image_grid({"data": IMAGES}, "Images", (0.0, 2.0))
    np.testing.assert_allclose(given.axes[0].images[0].get_array(), IMAGES[0, 0] / 2)


def test_captions_stand_under_the_images_of_their_row() -> None:
    rows = {"data": IMAGES, "VAE": IMAGES[:2]}
    figure = plots.image_grid(rows, "heading", captions={"VAE": ["1.5", "2.5"]})
    assert [ax.get_xlabel() for ax in figure.axes] == ["", "", "", "1.5", "2.5", ""]
    assert figure.get_figheight() > plots.image_grid(rows, "heading").get_figheight()


def test_images_of_one_grey_are_drawn() -> None:
    figure = plots.reconstructions(np.zeros((1, 1, 2, 2)), {"a": (np.zeros((1, 1, 2, 2)),) * 2})
    assert all(np.isfinite(ax.images[0].get_array()).all() for ax in figure.axes[:3])


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.roc_curves({"noise": {"nll": rates(1)}}, {"noise": {"nll": (0.6, 0.1)}}),
        lambda: plots.score_histograms({"s": np.arange(9.0)}, {"s": {"noise": np.arange(4.0)}}),
        lambda: plots.latent_map({"one": latent(1.0)}, LABELS, CLASSES),
        lambda: plots.reconstructions(IMAGES, {"a": (IMAGES, IMAGES)}),
        lambda: plots.image_grid({"faces": COLOUR}, "Faces"),
    ],
)
def test_figures_are_written_and_leave_no_global_state(draw: Callable[[], Figure], tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    assert plots.save(draw(), tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: plots.roc_curves({}, {}), "no ROC curve"),
        (lambda: plots.roc_curves({"noise": {}}, {}), "no ROC curve"),
        (lambda: plots.roc_curves({"noise": {"nll": rates(1)}}, {"noise": {}}), r"\['nll'\] of 'noise' have no AUROC"),
        (lambda: plots.score_histograms({}, {}), "give both"),
        (lambda: plots.score_histograms({"s": np.zeros(2)}, {"s": {"noise": np.zeros(0)}}), "'s' of noise are empty"),
        (lambda: plots.score_histograms({"s": np.array([np.inf])}, {"s": {}}), "'s' of test data are empty or not"),
        (lambda: plots.latent_map({}, LABELS, CLASSES), "no latent map"),
        (lambda: plots.latent_map({"one": latent(1.0)}, LABELS[:5], CLASSES), r"\(6, 2\), not \(5, 2\)"),
        (
            lambda: plots.latent_map(
                {"one": LatentMap(RNG.random((6, 2)), (np.zeros(5), np.zeros(4)), np.zeros((5, 4)))},
                LABELS,
                CLASSES,
            ),
            r"'one' have shape \(5, 4\), the grid \(4, 5\)",
        ),
        (lambda: plots.reconstructions(IMAGES, {}), "no reconstructions"),
        (lambda: plots.reconstructions(IMAGES, {"a": (IMAGES[:2], IMAGES)}), r"mean of 'a' has shape \(2, 1, 4, 5\)"),
        (lambda: plots.reconstructions(IMAGES, {"a": (IMAGES, IMAGES)}, ("x",)), "1 names for 3 images"),
        (lambda: plots.image_grid({}, "Images"), "no images"),
        (lambda: plots.image_grid({"x": IMAGES}, "", captions={"x": ["1"]}), "1 captions for 3 images 'x'"),
        (lambda: plots.image_grid({"x": IMAGES}, "", captions={"y": ["1"]}), r"captions of \['y'\]"),
        (lambda: plots.image_grid({"flat": np.zeros((2, 16))}, "Images"), r"'flat' have shape \(2, 16\)"),
    ],
)
def test_what_cannot_be_drawn_is_explained(call: Callable[[], Figure], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
