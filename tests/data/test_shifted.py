"""Inputs that stand out: the same shape and range, another content."""

import warnings
from pathlib import Path

import pytest
import torch

from osculate.data import load, out_of_distribution, shuffled_pixels
from tests.data.test_loading import mnist_folder
from tests.errors import says


def test_digits_are_rotated_and_shuffled() -> None:
    data = load("digits")
    images = data.test[0]
    shifted = out_of_distribution(data)
    assert set(shifted) == {"rotated digits", "shuffled pixels"}
    turned = shifted["rotated digits"]
    for _ in range(3):
        assert not torch.equal(turned, images)
        turned = turned.rot90(1, (-2, -1))
    assert torch.equal(turned, images), "four quarter turns are none"
    shuffled = shifted["shuffled pixels"]
    assert torch.equal(shuffled.flatten(1).sort(1).values, images.flatten(1).sort(1).values)
    assert (shuffled != images).any(1).any(-1).any(-1).float().mean() > 0.99


def test_each_image_is_shuffled_in_its_own_order() -> None:
    images = torch.arange(64.0).expand(2, 64).reshape(2, 1, 8, 8)
    a, b = shuffled_pixels(images, torch.Generator().manual_seed(0))
    assert not torch.equal(a, b)


def test_the_seed_decides() -> None:
    data = load("digits")
    first, again, other = (out_of_distribution(data, seed)["shuffled pixels"] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_sets_without_partners_are_refused() -> None:
    with pytest.raises(ValueError, match=says("'sine'", "'digits'", "'mnist'")):
        out_of_distribution(load("sine"))


def test_partners_that_are_not_here_are_left_out_with_a_warning(tmp_path: Path) -> None:
    folder = mnist_folder(tmp_path)
    data = load("mnist", folder=folder)
    for given in (folder, folder / "mnist"):  # MNIST's own files are not taken for the others'
        with pytest.warns(UserWarning, match="is left out") as found:
            assert out_of_distribution(data, folder=given) == {}
        assert [str(w.message).split()[0] for w in found] == ["Fashion-MNIST", "KMNIST", "notMNIST"]


def test_real_partners(data_folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shifted = out_of_distribution(load("fashion_mnist", folder=data_folder, train_size=10), folder=data_folder)
    assert list(shifted) == ["MNIST", "KMNIST", "notMNIST"]
    for images in shifted.values():
        assert images.shape == (10_000, 1, 28, 28)
        assert images.dtype == torch.float32
        assert float(images.max()) == 1
