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


def test_bands_beside_a_true_function_share_their_axes() -> None:
    x = [0.0, 1.0, 2.0]
    one = plots.Band(x, [0.0, 1.0, 2.0], [1.0, 1.0, 1.0], "a note")
    figure = plots.regression_bands(dict.fromkeys("abc", one), [0.5], [0.5], truth=x)
    axes = [ax for ax in figure.axes if ax.get_visible()]
    assert [ax.get_title(loc="left") for ax in axes] == ["a: a note", "b: a note", "c: a note"]
    assert len({ax.get_ylim() for ax in axes}) == 1
    with pytest.raises(ValueError, match="no predictive band"):
        plots.regression_bands({}, [0.5], [0.5])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: plots.band_grid({}, X, X), "no predictive band"),
        (lambda: plots.band_grid({"a": {}}, X, X), "no predictive band"),
    ],
)
def test_nothing_to_draw_is_an_error(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()  # type: ignore[operator]
