"""Frey Face: the grey frames of a film of one face, without labels."""

import numpy as np
import torch

from osculate.data.dataset import Request, Source, random_test_part
from osculate.data.files import read_npz

FRAMES = (1_965, 28, 20)
#: Frames to test on.
TEST = 465

FORMAT = f"an .npz archive with X, uint8 {FRAMES}: the frames in the film's order; nothing is downloaded"


def frey_face(request: Request) -> Source:
    """1,965 images of 28 × 20 pixels, 465 of them for testing; targets have shape (N, 0).

    ``splits="standard"``: the first 1,500 frames for training and the last 465 for testing, as published code of
    variational autoencoders splits them. The frames are in the film's order, so that its last quarter is a shift: other
    expressions than those that were trained on. ``splits="random"``: as many frames, at random (by the seed); nearly
    the same ones, from a moment before or after, are then in the training part.

    The file is ``frey_face/frey_face.npz``. Source: Brendan Frey and Sam Roweis.

    Raises:
        FileNotFoundError: the file is not there; nothing is downloaded.
        ValueError: the file holds something else, or another split than 0 is asked for.
    """
    if request.split != 0:
        raise ValueError(
            f"'frey_face' has one {request.splits} split, so split={request.split} means nothing; for other random ones"
            " use seed."
        )
    path = request.find("frey_face/frey_face.npz", FORMAT)
    (x,) = read_npz(path, "X")
    if x.shape != FRAMES or x.dtype != np.uint8:
        raise ValueError(f"X in {path} has shape {x.shape} ({x.dtype}), but Frey Face is {FORMAT}.")
    images, none = torch.from_numpy(x)[:, None], torch.zeros(len(x), 0)
    if request.splits == "random":
        return Source(*random_test_part(images, none, TEST, request.seed))
    return Source((images[:-TEST], none[:-TEST]), (images[-TEST:], none[-TEST:]))
