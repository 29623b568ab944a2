"""The course of learned precisions: every run and every point of the grid is drawn where it belongs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osculate import plots

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


def test_runs_start_at_their_initial_precision_and_variants_are_in_the_first_panel_only(tmp_path: Path) -> None:
    figure = plots.learned_precisions(COURSES, GRID, "heading")
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


@pytest.mark.parametrize(("courses", "grid"), [({}, GRID), (COURSES, [])])
def test_nothing_to_draw_is_refused(courses: dict, grid: list) -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        plots.learned_precisions(courses, grid, "heading")
