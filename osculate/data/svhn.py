"""Street View House Numbers: 32 × 32 colour photographs of digits."""

from pathlib import Path

import numpy as np
import torch

from osculate.data.dataset import Part, Source
from osculate.data.files import Download, find
from osculate.data.request import Request

CLASSES = tuple(str(digit) for digit in range(10))
ORIGINALS = {
    "train": Download("http://ufldl.stanford.edu/housenumbers/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
    "test": Download("http://ufldl.stanford.edu/housenumbers/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
}


def svhn(request: Request) -> Source:
    """SVHN, cropped digits: 73,257 training and 26,032 test images, from the original MATLAB files (Netzer 2011)."""
    train, test = (
        _part(
            find(
                f"svhn/{part}_32x32.mat",
                request.folder,
                download if request.download else None,
                "the original MATLAB file of SVHN, format 2",
            )
        )
        for part, download in ORIGINALS.items()
    )
    return Source(train, test, CLASSES)


def _part(path: Path) -> Part:
    """Images (32, 32, 3, N) as (N, 3, 32, 32); the label 10 is the digit 0."""
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=("X", "y"))
        x, y = content["X"], content["y"].reshape(-1)
    except (ValueError, KeyError, TypeError, EOFError, OSError, NotImplementedError) as error:
        raise ValueError(f"{path} is no complete file of SVHN ({error}); delete it and fetch it again") from error
    images = torch.from_numpy(np.ascontiguousarray(x.transpose(3, 2, 0, 1)))
    return images, torch.from_numpy(y.astype(np.int64)) % 10
