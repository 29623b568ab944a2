"""The UCI regression sets of Hernandez-Lobato and Adams (2015), with their standard splits and with gap splits."""

import torch

from osculate.data.dataset import Source
from osculate.data.files import find, read_npz
from osculate.data.request import Request

NAMES = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")

FORMAT = (
    "an .npz archive with X (n, d), y (n,), standard_test_mask (splits, n) and gap_test_mask (d, n), the masks marking"
    " the test rows of each split"
)


def uci(name: str, request: Request) -> Source:
    """A UCI regression set and one of its splits.

    ``splits="standard"``: about a tenth of the rows, at random, for testing. ``splits="gap"``: the middle
    third of the rows sorted by one input, which asks for wide error bars between two regions with data (Foong
    et al. 2019); ``split`` is the number of that input.

    The files are archives with ``X`` (n, d), ``y`` (n,), ``standard_test_mask`` (splits, n) and
    ``gap_test_mask`` (d, n), in ``uci_regression/<name>.npz``.

    Raises:
        FileNotFoundError: the file is not there.
        ValueError: there is no such split.
    """
    path = find(f"uci_regression/{name}.npz", request.folder, describe=FORMAT)
    x, y, masks = read_npz(path, "X", "y", f"{request.splits}_test_mask")
    if not 0 <= request.split < len(masks):
        raise ValueError(
            f"{name!r} has {len(masks)} {request.splits} splits, numbered from 0; there is no split {request.split}"
        )
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
    test = torch.from_numpy(masks[request.split].astype(bool))
    return Source((inputs[~test], targets[~test]), (inputs[test], targets[test]))
