"""Inputs that stand out: the same shape and range, another content."""

import warnings
from pathlib import Path

import pytest
import torch

from osculate.data import load, out_of_distribution, rotated, shuffled_pixels
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


class TestRotated:
    @pytest.mark.parametrize(("degrees", "turns"), [(90, 1), (180, 2), (-90, 3), (360, 0)])
    def test_quarter_turns_are_exact(self, degrees: float, turns: int) -> None:
        images = torch.rand(2, 3, 7, 7)
        torch.testing.assert_close(rotated(images, degrees), images.rot90(turns, (-2, -1)), atol=1e-5, rtol=0)

    def test_two_turns_of_a_smooth_image_are_one(self) -> None:
        rows, columns = torch.meshgrid(torch.linspace(-1, 1, 41), torch.linspace(-1, 1, 61), indexing="ij")
        blob = torch.exp(-20 * ((rows + 0.2) ** 2 + (columns * 1.5 - 0.1) ** 2))[None, None]
        torch.testing.assert_close(rotated(rotated(blob, 20), 25), rotated(blob, 45), atol=0.03, rtol=0)
        # pixels keep their shape although the image is not square: the mass stays, and turns by the angle
        assert float(rotated(blob, 30).sum()) == pytest.approx(float(blob.sum()), rel=1e-2)
        expected = self.centre(blob)[0] * torch.tensor(30.0).deg2rad().cos() - self.centre(blob)[1] * 0.5
        assert float(self.centre(rotated(blob, 30))[0]) == pytest.approx(float(expected), abs=0.05)

    @staticmethod
    def centre(image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Row and column of the centre of mass, from the middle of the image, in pixels."""
        height, width = image.shape[-2:]
        rows, columns = torch.arange(height) - (height - 1) / 2, torch.arange(width) - (width - 1) / 2
        mass = image[0, 0] / image.sum()
        return (mass.sum(1) * rows).sum(), (mass.sum(0) * columns).sum()

    def test_corners_come_in_as_zero(self) -> None:
        found = rotated(torch.ones(1, 1, 11, 11), 45)
        assert float(found[0, 0, 0, 0]) == 0
        assert float(found[0, 0, 5, 5]) == pytest.approx(1)

    def test_what_cannot_be_turned(self) -> None:
        with pytest.raises(ValueError, match=says("(4, 4)")):
            rotated(torch.ones(4, 4), 3)
        with pytest.raises(ValueError, match="degrees is nan"):
            rotated(torch.ones(1, 1, 4, 4), float("nan"))


def test_real_partners_of_cifar(data_folder: Path) -> None:
    titles = ["CelebA", "MNIST", "Fashion-MNIST", "KMNIST", "notMNIST", "shuffled pixels"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shifted = out_of_distribution(load("cifar10", folder=data_folder), folder=data_folder)
    assert list(shifted) == titles
    for images in shifted.values():
        assert images.shape[1:] == (3, 32, 32)
        assert images.dtype == torch.float32
        assert 0.5 < float(images.max()) <= 1
        assert 1_000 <= len(images) <= 2_000
