"""Figures of reconstructed images: what is in them, and what is refused."""

import numpy as np
import pytest
import torch

from osculate import plots
from tests.errors import says


def test_error_maps_show_errors_and_error_bars_in_one_scale() -> None:
    truth, mean, deviation = torch.rand(6, 8), torch.rand(6, 8), torch.rand(6, 8)
    figure = plots.error_maps(truth, {"one": (mean, deviation), "two": (truth, 0 * deviation)}, "heading")
    images = [ax.images[0] for ax in figure.axes if ax.images]
    assert len(images) == 8
    assert images[2].get_clim() == images[3].get_clim()
    np.testing.assert_allclose(images[2].get_array(), (mean - truth).abs())
    assert images[2].get_clim()[0] == 0
    unknown = plots.error_maps(None, {"one": (mean, deviation)}, "heading")
    assert [ax.get_title() for ax in unknown.axes if ax.images] == ["reconstruction", "standard deviation"]


def test_image_calibration_draws_a_line_for_each_method() -> None:
    levels = [0.1, 0.5, 0.9]
    both = plots.image_calibration(levels, {"a": levels, "b": [0, 0, 1]}, {"a": ([1, 2], [1, 3])}, "heading")
    assert [len(ax.lines) for ax in both.axes] == [3, 2]
    assert len(plots.image_calibration(levels, {"a": levels}, {}, "heading").axes) == 1


def test_residuals_mark_the_weights_that_were_taken() -> None:
    figure = plots.residuals([3.0, 2.0, 1.0], 0.5, 2, "heading")
    labels = [line.get_label() for line in figure.axes[0].lines]
    assert labels == ["mean squared residual of the data", "variance of the noise", "weights taken here"]
    assert len(plots.residuals([3.0, 2.0, 1.0], 0.5, 3, "heading").axes[0].lines) == 2


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match=says("at least one image")):
        plots.error_maps(torch.zeros(2, 2), {}, "heading")
    with pytest.raises(ValueError, match=says("'one'", "(3, 2)", "(2, 2)")):
        plots.error_maps(torch.zeros(2, 2), {"one": (torch.zeros(3, 2), torch.zeros(3, 2))}, "heading")
    with pytest.raises(ValueError, match=says("at least one method")):
        plots.image_calibration([0.5], {}, {}, "heading")
    with pytest.raises(ValueError, match=says("2 shares for 1 levels")):
        plots.image_calibration([0.5], {"a": [0.1, 0.2]}, {}, "heading")
    with pytest.raises(ValueError, match=says("at least one step")):
        plots.residuals([], 1.0, 0, "heading")
