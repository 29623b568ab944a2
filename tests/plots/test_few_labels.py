"""Figures of imputations and of few labels: what is drawn is what was given, and nothing else."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from osculate import plots

RNG = np.random.default_rng(0)
TRUTH = RNG.random((3, 4, 5))
OBSERVED = np.arange(4)[:, None].repeat(5, 1) >= 2
IMAGES = np.where(OBSERVED, TRUTH, RNG.random((6, 3, 4, 5)))
PREDICTED = np.array([[0, 1, 1], [0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 3, 2], [0, 3, 0]])


def test_hidden_pixels_are_left_open_and_all_images_share_one_scale(tmp_path: Path) -> None:
    figure = plots.imputations(TRUTH, OBSERVED, IMAGES, "A heading", draws=2)
    assert len(figure.axes) == 3 * 6
    truth, seen, mean, deviation, first = (row[0].images[0].get_array() for row in _rows(figure, 6)[:5])
    assert truth.shape == (4, 5, 4)
    assert truth[..., 3].all()
    np.testing.assert_array_equal(seen[..., 3], OBSERVED)
    np.testing.assert_array_equal(seen[2:, :, :3], truth[2:, :, :3])
    for whole in (mean, first):
        np.testing.assert_allclose(whole[2:], truth[2:])  # observed pixels look the same in every row
    assert np.ptp(deviation[2:, :, 0]) == 0
    assert np.ptp(deviation[:2, :, 0]) > 0
    words = [row[0].get_ylabel() for row in _rows(figure, 6)]
    assert words[:2] == ["truth", "observed\n(hatched: hidden)"]
    assert words[-1] == "draw 2"
    assert plots.save(figure, tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def _rows(figure: object, count: int) -> list:
    return np.array(figure.axes).reshape(count, -1).tolist()  # type: ignore[attr-defined]


def test_draws_that_show_different_classes_come_first_with_their_share() -> None:
    figure = plots.imputations(TRUTH, OBSERVED, IMAGES, "A heading", PREDICTED, draws=3)
    words = [[ax.get_xlabel() for ax in row] for row in _rows(figure, 7)[4:]]
    assert words == [
        ["0 (6 of 6)", "1 (4 of 6)", "2 (4 of 6)"],
        ["0 (6 of 6)", "3 (2 of 6)", "1 (1 of 6)"],
        ["0 (6 of 6)", "1 (4 of 6)", "0 (1 of 6)"],
    ]
    second = _rows(figure, 7)[5][1].images[0].get_array()
    own = plots.imputations(TRUTH, OBSERVED, IMAGES[[4]], "A heading", draws=1).axes[4 * 3 + 1].images[0].get_array()
    np.testing.assert_array_equal(second, own)
    named = plots.imputations(TRUTH, OBSERVED, IMAGES, "", PREDICTED, draws=1, classes=["nil", "one", "two", "three"])
    assert named.axes[-1].get_xlabel() == "two (4 of 6)"


@pytest.mark.parametrize("channels", [1, 3])
def test_images_may_have_channels_and_an_unknown_truth(channels: int) -> None:
    truth, images = TRUTH[:, None].repeat(channels, 1), IMAGES[:, :, None].repeat(channels, 2)
    truth[0, :, 0, 0] = np.nan
    figure = plots.imputations(truth, OBSERVED, images, "A heading", draws=9)
    rows = _rows(figure, 4 + 6)
    assert rows[0][0].images[0].get_array()[0, 0, 3] == 0
    assert rows[0][1].images[0].get_array()[..., 3].all()


def test_each_method_has_a_curve_a_colour_and_bars_of_its_own() -> None:
    labels = (1, 5, 20)
    curves = {name: ([0.2, 0.3, 0.4], [0.1, 0.05, 0.01]) for name in ("autoencoder", "Laplace", "MAP", "a", "b", "c")}
    figure = plots.accuracy_against_labels(labels, curves, "A heading", chance=0.1)
    (ax,) = figure.axes
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(curves)
    bars = ax.containers
    assert len(bars) == len({to_hex(bar.lines[0].get_color()) for bar in bars}) == 6
    np.testing.assert_allclose(bars[0].lines[0].get_ydata().astype(float), [0.2, 0.3, 0.4])
    np.testing.assert_allclose(np.log(bars[0].lines[0].get_xdata().astype(float)), np.log(labels), atol=0.1)
    np.testing.assert_allclose(bars[0].lines[2][0].get_segments()[0][:, 1].astype(float), [0.1, 0.3])
    assert ax.get_xscale() == "log"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "5", "20"]
    assert set(ax.lines[0].get_ydata()) == {0.1}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: plots.imputations(TRUTH[:2], OBSERVED, IMAGES, ""), r"\(6, 3, 4, 5\).*\(2, 4, 5\)"),
        (lambda: plots.imputations(TRUTH, OBSERVED, IMAGES, "", draws=0), "0 draws"),
        (lambda: plots.imputations(TRUTH, OBSERVED, IMAGES, "", PREDICTED[:5]), r"classes of shape \(5, 3\)"),
        (lambda: plots.accuracy_against_labels((1, 2), {}, ""), "none"),
        (lambda: plots.accuracy_against_labels((1, 2), {"a": ([0.1], [0.1])}, ""), "'a' 1"),
    ],
)
def test_what_does_not_fit_is_refused(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()  # type: ignore[operator]
