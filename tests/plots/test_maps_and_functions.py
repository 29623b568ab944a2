"""Probability maps and drawn functions: what they show, and what they refuse."""

import numpy as np
import pytest

from osculate import plots

LINE = np.linspace(-1, 1, 5)


def test_maps_share_one_scale_and_show_both_classes() -> None:
    maps = {"one": np.full((4, 5), 0.2), "two": np.tile(np.linspace(0, 1, 5), (4, 1))}
    x, y = np.array([[0.0, 0.0], [0.5, 0.5], [-0.5, 0.0]]), np.array([0, 1, 1])
    figure = plots.probability_maps(maps, (LINE, LINE[:4]), x, y)
    axes = figure.axes[:2]
    assert [ax.get_title("left") for ax in axes] == ["one", "two"]
    assert {tuple(ax.collections[0].get_clim()) for ax in axes} == {(0.0, 1.0)}
    points = [len(line.get_xdata()) for line in axes[0].lines]
    assert points == [1, 2]


def test_a_map_that_is_not_on_the_grid_is_refused() -> None:
    data = np.zeros((1, 2)), np.zeros(1)
    with pytest.raises(ValueError, match="at least one"):
        plots.probability_maps({}, (LINE, LINE), *data)
    with pytest.raises(ValueError, match=r"'one' has shape \(5, 4\), the grid \(4, 5\)"):
        plots.probability_maps({"one": np.zeros((5, 4))}, (LINE, LINE[:4]), *data)


def test_the_scale_of_drawn_functions_is_that_of_the_data() -> None:
    wild = plots.Draws(LINE, 1e6 * np.ones((3, 5)), 1e6 * np.ones(5), np.zeros(5), "off scale")
    x, y = np.array([-0.5, 0.5]), np.array([-1.0, 1.0])
    figure = plots.function_draws({"wild": wild, "calm": plots.Draws(LINE, np.zeros((2, 5)), LINE, LINE)}, x, y)
    assert figure.axes[0].get_ylim() == (-2.0, 2.0)
    assert figure.axes[0].get_title("left") == "wild: off scale"
    assert len(figure.axes[0].lines) == 3 + 3  # draws, their mean, the mode, the data
    assert plots.function_draws({"wild": wild}, x, y, limits=(-5.0, 5.0)).axes[0].get_ylim() == (-5, 5)
    with pytest.raises(ValueError, match="at least one"):
        plots.function_draws({}, x, y)
