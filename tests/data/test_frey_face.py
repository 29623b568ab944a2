"""Frey Face: which frames are in which part, files of something else, and the film itself."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from osculate.data import Dataset, load
from tests.data.test_loading import check
from tests.errors import says


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A film whose frames show their own number, in their first two pixels."""
    frames = np.zeros((1965, 28, 20), dtype=np.uint8)
    frames[:, 0, 0], frames[:, 0, 1] = np.divmod(np.arange(1965), 256)
    return write(tmp_path, frames)


def write(folder: Path, frames: np.ndarray) -> Path:
    (folder / "frey_face").mkdir()
    np.savez(folder / "frey_face" / "frey_face.npz", X=frames)
    return folder


def numbers(images: Tensor) -> list[int]:
    high, low = (images[:, 0, 0, :2] * 255).round().long().unbind(1)
    return (256 * high + low).tolist()


def parts(data: Dataset) -> tuple[list[int], list[int], list[int]]:
    train, validation, test = (numbers(x) for x, _ in (data.train, data.validation, data.test))
    return train, validation, test


def test_the_end_of_the_film_is_for_testing(folder: Path) -> None:
    data = load("frey_face", folder=folder)
    check(data)
    train, validation, test = parts(data)
    assert test == list(range(1500, 1965))
    assert sorted(train + validation) == list(range(1500))
    assert len(validation) == 150
    assert data.input_shape == (1, 28, 20)
    assert not data.has_targets
    assert parts(load("frey_face", folder=folder, seed=1))[2] == test


def test_a_random_split_has_as_many_frames_from_everywhere(folder: Path) -> None:
    train, validation, test = parts(load("frey_face", folder=folder, splits="random", validation_size=200))
    assert (len(train), len(validation), len(test)) == (1300, 200, 465)
    assert sorted(train + validation + test) == list(range(1965))
    assert sum(frame < 1500 for frame in test) == pytest.approx(465 * 1500 / 1965, abs=40)
    again, other = (parts(load("frey_face", folder=folder, splits="random", seed=seed))[2] for seed in (0, 1))
    assert again == test
    assert other != test


@pytest.mark.parametrize("frames", [np.zeros((1965, 560), np.uint8), np.zeros((1965, 28, 20), np.float32)])
def test_a_file_of_something_else_is_told(tmp_path: Path, frames: np.ndarray) -> None:
    words = says("frey_face.npz", str(frames.shape), str(frames.dtype), "(1965, 28, 20)", "uint8")
    with pytest.raises(ValueError, match=words):
        load("frey_face", folder=write(tmp_path, frames))


def test_a_missing_file_says_what_to_put_where(tmp_path: Path) -> None:
    path = str(tmp_path / "frey_face" / "frey_face.npz")
    with pytest.raises(FileNotFoundError, match=says(path, "OSCULATE_DATA", "X, uint8 (1965, 28, 20)")):
        load("frey_face", folder=tmp_path)


def test_the_end_of_the_real_film_is_further_from_its_beginning_than_a_random_part(data_folder: Path) -> None:
    if not (data_folder / "frey_face").is_dir():
        pytest.skip(f"{data_folder} holds no frey_face")

    def nearest(data: Dataset) -> float:
        check(data)
        test, train = (x.flatten(1) for x in (data.test[0], data.train[0]))
        return float(torch.cdist(test, train).amin(1).mean())

    standard, random = (
        nearest(load("frey_face", folder=data_folder, splits=splits)) for splits in ("standard", "random")
    )
    assert standard > 1.1 * random
