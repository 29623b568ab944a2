"""Figures of the tutorial's small examples: what they show follows from what they are given."""

import numpy as np
import pytest

from osculate import plots

X = np.linspace(-1, 1, 20)
BAND = plots.Band(X, np.sin(X), 0.1 + 0 * X)


def test_a_grid_of_bands_has_a_row_for_each_way_and_names_its_columns_once() -> None:
    rows = {"linearised": {"full": BAND, "diag": BAND}, "sampled": {"full": BAND, "diag": BAND}}
    figure = plots.band_grid(rows, X, np.sin(X), ((-0.2, 0.2),), "A heading")
    axes = figure.axes
    assert len(axes) == 4
    assert [ax.get_title(loc="left") for ax in axes] == ["full", "diag", "", ""]
    assert [axes[0].get_ylabel(), axes[2].get_ylabel()] == ["linearised", "sampled"]
    assert axes[0].get_ylim() == axes[3].get_ylim()


def test_the_planes_of_logistic_regression_share_their_points() -> None:
    axis, points, labels = np.linspace(-1, 1, 5), np.array([[0.0, 0.5], [0.5, 0.0]]), np.array([0, 1])
    density = np.exp(-np.add.outer(axis**2, axis**2))
    posterior = ((axis, axis), {"exact": density, "Gaussian": density**2}, np.zeros(2))
    maps = {"MAP": np.add.outer(axis, axis) / 4 + 0.5, "exact": np.add.outer(axis, axis) / 8 + 0.5}
    figure = plots.logistic_planes(posterior, maps, (axis, axis), points, labels)
    first, second, third = figure.axes[:3]
    assert [ax.get_title(loc="left") for ax in (first, second, third)] == ["posterior over the weights", "MAP", "exact"]
    assert [line.get_xdata().tolist() for line in second.lines] == [line.get_xdata().tolist() for line in third.lines]


def test_curves_of_errors_stand_beside_what_is_wanted() -> None:
    curves = {"γ": {"one": ([4, 16], [0.1, 0.05]), "two": ([4, 16], [0.02, 0.01])}}
    (ax,) = plots.error_curves(curves, {"γ": 0.01}, "A heading").axes
    assert len(ax.lines) == 3
    assert set(ax.lines[-1].get_ydata()) == {0.01}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: plots.band_grid({}, X, X), "no predictive band"),
        (lambda: plots.band_grid({"a": {}}, X, X), "no predictive band"),
        (lambda: plots.logistic_planes(((X, X), {}, X[:2]), {}, (X, X), X, X), "no probability map"),
        (lambda: plots.error_curves({}, {}, ""), "no errors"),
    ],
)
def test_nothing_to_draw_is_an_error(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()  # type: ignore[operator]
