"""Figures of variational autoencoders: what they show is where and as it was given, and what they refuse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from osculate import plots


def texts(figure: Figure) -> list[str]:
    return [artist.get_text() for artist in figure.findobj(matplotlib.text.Text)]


def grid(rows: int, columns: int, channels: int = 1) -> np.ndarray:
    """Images of 3 × 2 pixels, each of one grey: 10 times its row plus its column."""
    values = 10.0 * np.arange(rows)[:, None] + np.arange(columns)
    return np.broadcast_to(values[..., None, None, None], (rows, columns, channels, 3, 2))


def bounds(**levels: tuple[float, float]) -> plots.Bounds:
    return plots.Bounds([1, 10, 100], ([-90.0, -88.0, -87.0], [0.3, 0.2, 0.1]), levels)


def test_the_first_code_grows_to_the_right_and_the_second_upwards() -> None:
    (ax,) = plots.manifold({"": grid(2, 3)}, "heading", limits={"": (0.0, 12.0)}).axes
    mosaic = ax.images[0].get_array()
    assert mosaic.shape == (2 * 3, 3 * 2)
    np.testing.assert_allclose(mosaic[::3, ::2] * 12, [[10, 11, 12], [0, 1, 2]])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0.17", "0.5", "0.83"]
    np.testing.assert_allclose(ax.get_xticks(), [0.5, 2.5, 4.5])  # centres of two pixels each
    assert dict(zip([t.get_text() for t in ax.get_yticklabels()], ax.get_yticks(), strict=True)) == {
        "0.25": 4.0,
        "0.75": 1.0,
    }
    negative = plots.manifold({"": grid(2, 3)}, "", limits={"": (12.0, 0.0)}).axes[0].images[0].get_array()
    np.testing.assert_allclose(negative, 1 - mosaic, atol=1e-12)


def test_a_fine_mosaic_tells_quantiles_where_they_are() -> None:
    (ax,) = plots.manifold({"": grid(20, 20, 3)}, "heading", ("a", "b"), ends=(0.1, 0.9)).axes
    assert ax.images[0].get_array().shape == (60, 40, 3)
    quantiles = np.array([float(tick.get_text()) for tick in ax.get_xticklabels()])
    np.testing.assert_allclose((ax.get_xticks() + 0.5) / 2 - 0.5, 19 * (quantiles - 0.1) / 0.8, atol=0.1)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "b")


def test_numbers_stand_in_their_cells_and_each_panel_has_its_scale() -> None:
    first = np.array([[1.0, 2.0, np.nan], [4.0, 5.0, 6.0]])
    panels = {"training": first, "test": 10 * first}
    figure = plots.heat_map(panels, ("units", ["100", "200"]), ("codes", ["2", "5", "10"]), "heading", "ELBO", ".2f")
    train, test = (ax for ax in figure.axes if ax.images)
    assert train.images[0].get_clim() == (1.0, 6.0)
    assert test.images[0].get_clim() == (10.0, 60.0)
    found = {text.get_position(): text.get_text() for text in test.texts}
    assert found == {(0, 0): "10.00", (1, 0): "20.00", (2, 0): "–", (0, 1): "40.00", (1, 1): "50.00", (2, 1): "60.00"}
    assert [tick.get_text() for tick in test.get_xticklabels()] == ["2", "5", "10"]
    assert [tick.get_text() for tick in test.get_yticklabels()] == ["100", "200"]
    assert texts(figure).count("ELBO") == 2
    inks = {text.get_text(): sum(to_rgb(text.get_color())) for text in train.texts}
    assert inks["1.00"] == 3.0  # white on the darkest cell
    assert inks["6.00"] < 1.0


def test_wide_panels_stand_below_one_another() -> None:
    rows, columns = ("r", ["a"]), ("c", [str(n) for n in range(14)])
    figure = plots.heat_map({name: np.arange(14.0)[None] for name in "xy"}, rows, columns, "", "")
    above, below = (ax.get_position() for ax in figure.axes if ax.images)
    assert above.y0 > below.y1
    assert above.x0 == below.x0


def test_bounds_are_drawn_with_their_errors_and_told() -> None:
    levels = {"AIS lower bound": (-86.0, 0.25), "exact": (-85.5, 0.0)}
    (ax,) = plots.sandwich({"VAE": bounds(**levels)}, "heading").axes
    curve, elbo, lower, exact = ax.lines
    np.testing.assert_array_equal(curve.get_xydata(), [[1, -90], [10, -88], [100, -87]])
    assert (elbo.get_xdata().tolist(), elbo.get_ydata().tolist()) == ([1], [-90.0])
    assert [set(line.get_ydata()) for line in (lower, exact)] == [{-86.0}, {-85.5}]
    band = ax.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose([band[:, 1].min(), band[:, 1].max()], [-90.3, -86.9])
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert words == [
        "importance-weighted bound, K = 100: -87.00 ± 0.10",
        "ELBO, K = 1: -90.00 ± 0.30",
        "AIS lower bound: -86.00 ± 0.25",
        "exact: -85.50",
    ]


def test_a_level_has_one_colour_in_all_panels_and_no_elbo_without_one_sample() -> None:
    many = plots.Bounds([5, 50], ([-89.0, -88.0], [0.1, 0.1]), {"exact": (-87.0, 0.0)})
    first, second = plots.sandwich({"a": bounds(AIS=(-86.0, 0.1), exact=(-85.0, 0.0)), "b": many}, "").axes
    assert second.lines[-1].get_color() == first.lines[-1].get_color() != first.lines[-2].get_color()
    assert not any("ELBO" in text.get_text() for text in second.get_legend().get_texts())


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.manifold({"": torch.rand(3, 3, 1, 4, 4, requires_grad=True)}, "heading"),
        lambda: plots.heat_map({"": torch.rand(2, 2)}, ("r", ["a", "b"]), ("c", ["a", "b"]), "heading", "what"),
        lambda: plots.sandwich({"VAE": bounds(AIS=(-86.0, 0.1))}, "heading"),
    ],
)
def test_figures_of_tensors_are_written_and_leave_no_global_state(draw: Callable[[], Figure], tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    assert plots.save(draw(), tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert dict(matplotlib.rcParams) == before


PLACES: Any = ("r", ["a", "b"])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: plots.manifold({}, ""), "at least one manifold"),
        (lambda: plots.manifold({"": grid(1, 3)}, ""), r"\(1, 3, 1, 3, 2\)"),
        (lambda: plots.manifold({"": grid(2, 2, 2)}, ""), r"\(2, 2, 2, 3, 2\)"),
        (lambda: plots.manifold({"": grid(2, 2)[0]}, ""), r"\(2, 1, 3, 2\)"),
        (lambda: plots.heat_map({}, PLACES, PLACES, "", ""), "no values"),
        (lambda: plots.heat_map({"x": np.ones((2, 3))}, PLACES, PLACES, "", ""), r"'x' has shape \(2, 3\)"),
        (lambda: plots.heat_map({"x": np.full((2, 2), np.nan)}, PLACES, PLACES, "", ""), "0 values"),
        (lambda: plots.sandwich({}, ""), "no bounds"),
        (lambda: plots.sandwich({"x": plots.Bounds([], ([], []))}, ""), "'x' has 0 counts"),
        (lambda: plots.sandwich({"x": plots.Bounds([1], ([1.0], []))}, ""), "1 bounds and 0 standard errors"),
    ],
)
def test_what_cannot_be_drawn_is_explained(call: Callable[[], Figure], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
