"""Commands survive kill -9 at random moments, with temporary files on the same and on another file system."""

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from osculate.files import _machine, write_text
from tests.faults.kills import ELSEWHERE, JOBS, Kills


@pytest.fixture(scope="module", name="kills")
def _kills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kills]:
    with tempfile.TemporaryDirectory(dir=ELSEWHERE if ELSEWHERE.is_dir() else None) as elsewhere:
        yield Kills(tmp_path_factory.mktemp("kills"), Path(elsewhere))


@pytest.mark.release
@pytest.mark.parametrize("name", list(JOBS))
def test_a_killed_command_goes_on(name: str, kills: Kills) -> None:
    assert not kills.outcome(name, list(JOBS).index(name))


def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "q.safetensors"
    left, other, running = (
        tmp_path / name
        for name in (
            f".q.safetensors.{_machine()}.{dead()}.ab.tmp",
            f".p.safetensors.{_machine()}.{dead()}.ab.tmp",
            f".q.safetensors.{_machine()}.1.ab.tmp",
        )
    )
    for each in (left, other, running):
        each.write_text("half")
    write_text(path, "whole")
    assert path.read_text() == "whole"
    assert not left.exists(), "its process has ended"
    assert other.exists(), "it is of another file"
    assert running.exists(), "its process runs"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_full_or_read_only_disk_leaves_the_previous_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = tmp_path / "notes.txt"
    write_text(path, "before")

    def fails(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="the previous file is unchanged: choose another folder"):
        write_text(path, "after")
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]
