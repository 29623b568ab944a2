"""SVHN: the layout of the original files, and damaged ones."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from osculate.data import load

PIXELS = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 14)).astype(np.uint8)


def write(folder: Path) -> Path:
    (folder / "svhn").mkdir()
    for part, rows in (("train", slice(0, 10)), ("test", slice(10, 14))):
        labels = (np.arange(14) % 10 + 1)[rows, None]  # 10 stands for the digit 0
        savemat(folder / "svhn" / f"{part}_32x32.mat", {"X": PIXELS[..., rows], "y": labels})
    return folder


def test_images_have_their_axes_in_order_and_ten_is_zero(tmp_path: Path) -> None:
    data = load("svhn", folder=write(tmp_path), validation_size=1)
    assert torch.equal(data.test[0], torch.from_numpy(PIXELS[..., 10:]).permute(3, 2, 0, 1) / 255.0)
    assert data.test[1].tolist() == [1, 2, 3, 4]
    assert sorted([*data.train[1].tolist(), *data.validation[1].tolist()]) == list(range(10))


def test_damaged_files_are_told(tmp_path: Path) -> None:
    path = write(tmp_path) / "svhn" / "test_32x32.mat"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match="no complete file of SVHN"):
        load("svhn", folder=tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="original MATLAB file of SVHN"):
        load("svhn", folder=tmp_path)
