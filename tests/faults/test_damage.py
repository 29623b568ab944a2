"""Damaged files end in a sentence, and none gives another answer in silence."""

import json
import random
import shutil
from pathlib import Path

import pytest
import torch

from tests.faults.__main__ import PAGE, RECORD, filled, tried
from tests.faults.artefacts import MAKERS, TENSORS, answer, make, name_of
from tests.faults.damage import ACCIDENTS, swapped_tensors
from tests.faults.hostile import hostile


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wholes")
    for kind in MAKERS:
        (folder / kind).mkdir()
        make(kind, folder / kind / name_of(kind))
    return {kind: folder / kind / name_of(kind) for kind in MAKERS}


@pytest.mark.parametrize("kind", MAKERS)
def test_accidents(kind: str, wholes: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(wholes[kind].parent, tmp_path, dirs_exist_ok=True)
    path, draw = tmp_path / name_of(kind), random.Random(kind)
    content, expected = wholes[kind].read_bytes(), answer(kind, wholes[kind])
    more = {"swapped tensors": swapped_tensors} if kind in TENSORS else {}
    for damage in {**ACCIDENTS, **more}.values():
        for _ in range(4):
            path.write_bytes(content)
            damage(path, draw)
            try:
                found = answer(kind, path)
            except ValueError:
                continue
            assert torch.equal(found, expected)


def test_the_page_shows_the_record() -> None:
    page, record = PAGE.read_text(encoding="utf-8"), json.loads(RECORD.read_text())
    assert filled(page, record) == page


@pytest.mark.parametrize("kind", MAKERS)
def test_hostile_files_with_a_right_checksum(kind: str, wholes: dict[str, Path], tmp_path: Path) -> None:
    """They are refused in a sentence, or are files of a consistent other artefact; nothing is executed or inflated."""
    path, draw = tmp_path / name_of(kind), random.Random(kind)
    content, expected = wholes[kind].read_bytes(), answer(kind, wholes[kind])
    for _ in range(12):
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        hostile(path, draw)
        assert not tried(kind, path, expected).startswith("raw")
