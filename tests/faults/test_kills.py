"""Commands survive kill -9 at random moments, with temporary files on the same and on another file system."""

import random
import tempfile
from pathlib import Path

import pytest

from tests.faults.kills import ELSEWHERE, JOBS, difference, killed, undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_a_killed_command_goes_on(name: str, tmp_path: Path) -> None:
    """Twice each: ten kills in all."""
    job, draw = JOBS[name], random.Random(name)
    seconds = undisturbed(job, tmp_path / "whole", tmp_path / "scratch")
    with tempfile.TemporaryDirectory(dir=ELSEWHERE if ELSEWHERE.is_dir() else None) as elsewhere:
        for number, scratch in enumerate((tmp_path / "scratch", Path(elsewhere))):
            run = tmp_path / str(number) / "run"
            assert not killed(job, run, scratch, seconds, draw)
            assert not difference(job, tmp_path / "whole", run)
