"""UCI sets with their own splits, for regression and for classification."""

import numpy as np
import torch
from torch import Tensor

from osculate.data.dataset import Part, Request, Source
from osculate.data.files import read_npz

NAMES = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")

FORMAT = (
    "an .npz archive with X (n, d), y (n,), standard_test_mask (splits, n) and gap_test_mask (d, n), the masks marking"
    " the test rows of each split"
)

#: The vectors of "digits" have another name here, which is that of scikit-learn's images.
CLASSIFICATION = (
    "australian",
    "banana",
    "breast_cancer",
    "glass",
    "ionosphere",
    "satellite",
    "uci_digits",
    "vehicle",
    "waveform",
)

CLASSIFICATION_FORMAT = (
    "an .npz archive with X (n, d), y (n,) with the classes 0, 1, …, and split (splits, n), whose entries 0, 1 and 2"
    " mark the training, validation and test rows"
)


def uci(name: str, request: Request) -> Source:
    """One of the regression sets of Hernandez-Lobato and Adams (2015), and one of its splits.

    ``splits="standard"``: about a tenth of the rows, at random, for testing. ``splits="gap"``: the middle
    third of the rows sorted by one input, which asks for wide error bars between two regions with data (Foong
    et al. 2019); ``split`` is the number of that input.

    The files are archives with ``X`` (n, d), ``y`` (n,), ``standard_test_mask`` (splits, n) and
    ``gap_test_mask`` (d, n), in ``uci_regression/<name>.npz``.

    Raises:
        FileNotFoundError: the file is not there.
        ValueError: there is no such split.
    """
    path = request.find(f"uci_regression/{name}.npz", FORMAT)
    x, y, masks = read_npz(path, "X", "y", f"{request.splits}_test_mask")
    train, test = _parts(name, torch.from_numpy(x), torch.from_numpy(y), masks, request, 2)
    return Source(train, test)


def uci_classification(name: str, request: Request) -> Source:
    """One of the sets [immer2021] and one of its ten splits: 70 % for training, 15 % for validation, 15 % for testing.

    The split says which rows are for validation, and inputs are standardised by the training part. The files are
    ``uci_classification/<name>.npz``; "uci_digits" is in ``digits.npz``.

    Raises:
        FileNotFoundError: the file is not there.
        ValueError: there is no such split.
    """
    path = request.find(f"uci_classification/{name.removeprefix('uci_')}.npz", CLASSIFICATION_FORMAT)
    x, y, splits = read_npz(path, "X", "y", "split")
    targets = torch.from_numpy(y).long()
    train, validation, test = _parts(name, torch.from_numpy(x), targets, splits, request, 3)
    classes = tuple(str(c) for c in range(int(targets.max()) + 1))
    return Source(train, test, classes, validation, standardise=True)


def _parts(name: str, x: Tensor, y: Tensor, splits: np.ndarray, request: Request, count: int) -> list[Part]:
    """The rows that a split numbers 0, 1 and so on."""
    if not 0 <= request.split < len(splits):
        raise ValueError(
            f"{name!r} has {len(splits)} {request.splits} splits, numbered from 0; there is no split {request.split}."
        )
    number = torch.from_numpy(splits[request.split].astype(int))
    return [(x[number == part], y[number == part]) for part in range(count)]
