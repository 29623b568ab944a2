"""The small classification sets of Immer, Korzepa and Bauer (2021), with their ten splits."""

import torch

from osculate.data.dataset import Part, Source
from osculate.data.files import find, read_npz
from osculate.data.request import Request

#: File of each set; the vectors of "digits" have another name here, which is that of scikit-learn's images.
FILES = {
    "australian": "australian",
    "banana": "banana",
    "breast_cancer": "breast_cancer",
    "glass": "glass",
    "ionosphere": "ionosphere",
    "satellite": "satellite",
    "uci_digits": "digits",
    "vehicle": "vehicle",
    "waveform": "waveform",
}

FORMAT = (
    "an .npz archive with X (n, d), y (n,) with the classes 0, 1, …, and split (splits, n), whose entries 0, 1 and 2"
    " mark the training, validation and test rows"
)


def uci_classification(name: str, request: Request) -> Source:
    """One of the sets [immer2021] and one of its ten splits: 70 % for training, 15 % for validation, 15 % for testing.

    The split says which rows are for validation, and inputs are standardised by the training part. The files are
    ``uci_classification/<name>.npz``; "uci_digits" is in ``digits.npz``.

    Raises:
        FileNotFoundError: the file is not there.
        ValueError: there is no such split.
    """
    path = find(f"uci_classification/{FILES[name]}.npz", request.folder, describe=FORMAT)
    x, y, split = read_npz(path, "X", "y", "split")
    if not 0 <= request.split < len(split):
        raise ValueError(
            f"{name!r} has {len(split)} standard splits, numbered from 0; there is no standard split {request.split}"
        )
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y).long()
    train, validation, test = (_rows(inputs, targets, split[request.split] == part) for part in range(3))
    classes = tuple(str(c) for c in range(int(targets.max()) + 1))
    return Source(train, test, classes, validation, standardise=True)


def _rows(x: torch.Tensor, y: torch.Tensor, chosen: object) -> Part:
    rows = torch.as_tensor(chosen)
    return x[rows], y[rows]
