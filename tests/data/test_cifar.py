"""CIFAR-10 in its three formats: a reduced copy, the original archive, JPEG files; and damaged ones."""

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from osculate.data import load, out_of_distribution
from osculate.data.photographs import CLASSES, as_jpeg, read_jpegs
from tests.data.test_loading import check
from tests.errors import says

PIXELS = np.random.default_rng(0).integers(0, 256, (14, 32, 32, 3)).astype(np.uint8)
LABELS = (np.arange(14) % 10).astype(np.uint8)


def write_npz(folder: Path) -> Path:
    (folder / "cifar10").mkdir()
    for part, rows in (("train", slice(0, 10)), ("test", slice(10, 14))):
        np.savez(folder / "cifar10" / f"cifar10_{part}.npz", X=PIXELS[rows], y=LABELS[rows])
    return folder


def write_original(folder: Path, cut: int = 0, names: tuple[str, ...] = ()) -> Path:
    """Two images a batch: rows of a label, then red, green and blue."""
    (folder / "cifar10").mkdir()
    rows = np.concatenate([LABELS[:, None], PIXELS.transpose(0, 3, 1, 2).reshape(14, -1)], 1)
    names = names or (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
    with tarfile.open(folder / "cifar10" / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for number, name in enumerate(names):
            content = rows[2 * number : 2 * number + 2].tobytes()
            content = content[: len(content) - cut]
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return folder


def jpeg(image: np.ndarray) -> bytes:
    output = io.BytesIO()
    Image.fromarray(image).save(output, "JPEG", quality=75)
    return output.getvalue()


def write_jpegs(folder: Path) -> Path:
    (folder / "cifar10_jpeg").mkdir()
    for part, rows in (("train", range(12)), ("test", range(12, 14))):
        with zipfile.ZipFile(folder / "cifar10_jpeg" / f"cifar10_jpeg_{part}.zip", "w") as archive:
            for row in reversed(rows):
                archive.writestr(f"{part}/{row:05d}_{LABELS[row]}.jpg", jpeg(PIXELS[row]))
    return folder


def test_the_reduced_copy(tmp_path: Path) -> None:
    data = load("cifar10", folder=write_npz(tmp_path))
    check(data)
    assert data.classes == CLASSES
    assert torch.equal(data.test[0], torch.from_numpy(PIXELS[10:]).permute(0, 3, 1, 2) / 255.0)
    assert data.test[1].tolist() == [0, 1, 2, 3]


def test_the_original_archive_has_the_same_images(tmp_path: Path) -> None:
    for name in ("copy", "original"):
        (tmp_path / name).mkdir()
    copy = load("cifar10", folder=write_npz(tmp_path / "copy"), train_size=9)
    # five batches of two are ten training images, the sixth pair is the test part
    original = load("cifar10", folder=write_original(tmp_path / "original"), validation_size=1)
    check(original)
    assert len(original.train[0]) == 9
    assert torch.equal(original.test[0], torch.from_numpy(PIXELS[10:12]).permute(0, 3, 1, 2) / 255.0)
    known = {int(y): x for x, y in zip(*copy.train, strict=True)}  # the first ten rows have the ten labels
    for x, y in zip(*original.train, strict=True):
        assert int(y) not in known or torch.equal(x, known[int(y)])


@pytest.mark.parametrize(
    ("options", "words"),
    [({"cut": 1}, ["6145 bytes", "3073"]), ({"names": ("data_batch_1.bin",)}, ["data_batch_2.bin"])],
)
def test_damaged_archives(tmp_path: Path, options: dict, words: list[str]) -> None:
    with pytest.raises(ValueError, match=says("cifar-10-binary.tar.gz", *words)):
        load("cifar10", folder=write_original(tmp_path, **options))


def test_no_archive_at_all(tmp_path: Path) -> None:
    path = write_original(tmp_path) / "cifar10" / "cifar-10-binary.tar.gz"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match="no complete archive of CIFAR"):
        load("cifar10", folder=tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=says("binary version", "OSCULATE_DATA")):
        load("cifar10", folder=tmp_path)


def test_the_fine_labels_of_cifar100(tmp_path: Path) -> None:
    (tmp_path / "cifar100").mkdir()
    coarse, fine = np.full((14, 1), 7, np.uint8), (LABELS[:, None] * 9).astype(np.uint8)
    rows = np.concatenate([coarse, fine, PIXELS.transpose(0, 3, 1, 2).reshape(14, -1)], 1)
    with tarfile.open(tmp_path / "cifar100" / "cifar-100-binary.tar.gz", "w:gz") as archive:
        for part, some in (("train", rows[:10]), ("test", rows[10:])):
            entry = tarfile.TarInfo(f"cifar-100-binary/{part}.bin")
            entry.size = some.size
            archive.addfile(entry, io.BytesIO(some.tobytes()))
    data = load("cifar100", folder=tmp_path, validation_size=1)
    assert data.outputs == 100
    assert torch.equal(data.test[0], torch.from_numpy(PIXELS[10:]).permute(0, 3, 1, 2) / 255.0)
    assert data.test[1].tolist() == [0, 9, 18, 27]


def test_jpegs_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    data = load("cifar10_jpeg", folder=write_jpegs(tmp_path))
    check(data)
    assert data.test[1].tolist() == [2, 3]
    once = as_jpeg(torch.from_numpy(PIXELS[12:]).permute(0, 3, 1, 2))
    assert torch.equal(data.test[0], once / 255.0)


def test_partners_of_the_jpeg_set_are_compressed_alike(tmp_path: Path) -> None:
    data = load("cifar10_jpeg", folder=write_jpegs(tmp_path))
    with pytest.warns(UserWarning, match="CelebA is left out"):
        shuffled = out_of_distribution(data, folder=tmp_path)["shuffled pixels"]
    assert shuffled.shape == data.test[0].shape
    lossless = out_of_distribution_of_copy(tmp_path / "copy")
    again = as_jpeg((255 * shuffled).round().byte()) / 255.0
    # a second compression changes little where there was a first
    assert float((again - shuffled).abs().mean()) < 0.5 * float(
        (as_jpeg(lossless) / 255.0 - lossless / 255.0).abs().mean()
    )


def out_of_distribution_of_copy(folder: Path) -> torch.Tensor:
    folder.mkdir()
    data = load("cifar10", folder=write_npz(folder))
    with pytest.warns(UserWarning, match="is left out"):
        return (255 * out_of_distribution(data, folder=folder)["shuffled pixels"]).round().byte()


@pytest.mark.parametrize("shape", [(2, 1, 9, 11), (2, 3, 9, 11), (0, 3, 9, 11)])
def test_jpeg_compression_keeps_shapes(shape: tuple[int, ...]) -> None:
    images = torch.full(shape, 200, dtype=torch.uint8)
    assert torch.equal(as_jpeg(images), images), "a plain surface is not changed"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("test/1.jpg", b"x", ["'test/1.jpg'", "_<class>.jpg"]),
        ("test/1_2.jpg", b"no image", ["no complete zip archive"]),
        ("test/1_2.jpg", jpeg(PIXELS[0])[:300], ["no complete zip archive"]),
        ("", b"", ["no image"]),
    ],
)
def test_damaged_zips(tmp_path: Path, name: str, content: bytes, words: list[str]) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        if name:
            archive.writestr(name, content)
    with pytest.raises(ValueError, match=says("a.zip", *words)):
        read_jpegs(tmp_path / "a.zip")
    (tmp_path / "a.zip").write_bytes(b"PK")
    with pytest.raises(ValueError, match="no complete zip archive"):
        read_jpegs(tmp_path / "a.zip")


def test_real_cifar(data_folder: Path) -> None:
    data = load("cifar10", folder=data_folder)
    mean = 255 * data.test[0].mean((0, 2, 3))
    assert mean.tolist() == pytest.approx([126.505, 124.063, 114.972], abs=1e-2)
    assert data.test[1].bincount().tolist() == [105, 93, 100, 104, 92, 87, 114, 102, 110, 110]


@pytest.mark.slow
def test_real_jpegs_show_the_same_pictures(data_folder: Path) -> None:
    images, labels = read_jpegs(data_folder / "cifar10_jpeg" / "cifar10_jpeg_test.zip")
    assert labels.bincount().tolist() == [806, 797, 813, 801, 816, 811, 789, 800, 776, 791]
    lossless = load("cifar10", folder=data_folder).test
    assert torch.equal(labels[:1000], lossless[1][:1000])
    error = (images[:1000] / 255.0 - lossless[0][:1000]).square().mean((1, 2, 3))
    assert float(-10 * error.log10().median()) == pytest.approx(30.5, abs=0.5), "median PSNR in dB"
