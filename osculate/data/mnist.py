"""MNIST and similar sets: 28 × 28 grey images in ten classes."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from osculate.data.dataset import Part, Request, Source, random_test_part
from osculate.data.files import VARIABLE, Download, read_idx, read_npz


@dataclass(frozen=True)
class Family:
    """One member of the family.

    Args:
        title: Name of the set in papers.
        classes: Names of the ten classes.
        mirror: Address that the four original files lie under, or empty.
        md5: Published sums of the four files: training images, training labels, test images, test labels.
        archives: Files of a reduced copy in NumPy format for the training and test part, used if they exist.
    """

    title: str
    classes: tuple[str, ...]
    mirror: str = ""
    md5: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()


#: Order of the files is that of :attr:`Family.md5`.
FILES = tuple(f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))

FAMILY: Mapping[str, Family] = {
    "mnist": Family(
        "MNIST",
        tuple("0123456789"),
        mirror="https://ossci-datasets.s3.amazonaws.com/mnist/",
        md5=(
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    "fashion_mnist": Family(
        "Fashion-MNIST",
        ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
        mirror="https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
        md5=(
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
    "kmnist": Family(
        "KMNIST",
        ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
        mirror="https://codh.rois.ac.jp/kmnist/dataset/kmnist/",
        md5=(
            "bdb82020997e1d708af4cf47b453dcf7",
            "e144d726b3acfaa3e44228e80efcd344",
            "5c965bf0a639b31b8f53240b1b52f4d7",
            "7320c461ea6c1c855c0b718fb2a4b134",
        ),
        archives=("kmnist_train7000.npz", "kmnist_test.npz"),
    ),
    "notmnist": Family("notMNIST", tuple("ABCDEFGHIJ")),
}


def mnist_family(name: str, request: Request) -> Source:
    """MNIST, Fashion-MNIST or KMNIST with their own training and test parts, or notMNIST.

    notMNIST has no official training part here: 2,000 of its images (by the seed) are for testing.

    Sources: LeCun, Cortes and Burges; Xiao, Rasul and Vollgraf (2017); Clanuwat et al. (2018); Bulatov
        (2011).
    """
    if name == "notmnist":
        images, labels = family_part(name, 1, request)
        train, test = random_test_part(images, labels, min(2_000, len(images) // 5), request.seed)
        return Source(train, test, FAMILY[name].classes)
    return Source(family_part(name, 0, request), family_part(name, 1, request), FAMILY[name].classes)


def family_part(name: str, part: int, request: Request) -> Part:
    """Images, uint8 (N, 1, 28, 28), and labels, int64 (N,), of the training part (0) or the test part (1).

    They come from an archive in NumPy format if there is one, else from the idx files.
    """
    family = FAMILY[name]
    if family.archives:
        with suppress(FileNotFoundError):  # the original files are searched below, with an error that says what to do
            path = request.find(f"{name}/{family.archives[part]}")
            images, labels = (torch.from_numpy(array) for array in read_npz(path, "X", "y"))
            return _checked(family, images, labels)
    found = []
    for number, axes in ((2 * part, 3), (2 * part + 1, 1)):
        original = Download(family.mirror + FILES[number], family.md5[number]) if family.mirror else None
        describe = f"the original gzip-compressed idx file of {family.title}"
        found.append(read_idx(request.find(f"{name}/{FILES[number]}", describe, original), axes))
    return _checked(family, *found)


def _checked(family: Family, images: Tensor, labels: Tensor) -> Part:
    if len(images) != len(labels):
        raise ValueError(
            f"{family.title} has {len(images)} images and {len(labels)} labels: the two files do not belong"
            f" together. Fetch both again, or point {VARIABLE} at a complete copy."
        )
    if len(labels) and int(labels.max()) >= len(family.classes):
        raise ValueError(f"{family.title} has a label {int(labels.max())}, but its labels are 0 to 9: fetch it again.")
    return images[:, None], labels.long()
