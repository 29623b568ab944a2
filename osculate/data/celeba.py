"""Part of CelebA at 64 × 64 pixels: faces with forty attributes, for non-commercial research only."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from osculate.data.dataset import as_inputs
from osculate.data.files import find

TERMS = "an .npz archive with X (n, 64, 64, 3), attr and attr_names; CelebA allows non-commercial research only"


@dataclass(frozen=True, eq=False)
class Faces:
    """Images and what is to be seen on them.

    Args:
        images: values in [0, 1].
        attributes: table of 0 and 1, one row for each image.
        names: names of the attributes.
    """

    images: Float[Tensor, "N 3 64 64"]
    attributes: Bool[Tensor, "N A"]
    names: tuple[str, ...]


def celeba(part: str, folder: str | Path | None = None) -> Faces:
    """The faces of one part.

    Args:
        part: "train" (4,000) or "test" (1,000).
        folder: the only folder to look into, or None for the usual places; nothing is downloaded.

    Raises:
        FileNotFoundError: the file is in none of the places.
    """
    with np.load(find(f"celeba64/celeba64_{part}.npz", folder, describe=TERMS), allow_pickle=False) as file:
        images = torch.from_numpy(file["X"]).permute(0, 3, 1, 2)
        return Faces(as_inputs(images), torch.from_numpy(file["attr"]), tuple(str(name) for name in file["attr_names"]))
