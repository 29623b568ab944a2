"""Inputs that a classifier was not trained for, to test whether it notices."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.data.dataset import Dataset, as_inputs
from osculate.data.mnist import FAMILY, test_part
from osculate.data.request import Request

Shifted = dict[str, Tensor]


def out_of_distribution(dataset: Dataset, seed: int = 0, folder: str | Path | None = None) -> Shifted:
    """Sets of inputs that stand out from a data set, by name.

    For ``digits``: "rotated digits", its test images turned by 90 degrees (0, 1 and 8 can still be read,
    which is why no score reaches an AUROC of 1), and "shuffled pixels", its test images with the pixels of
    each image in an order of its own. For a member of the MNIST family: the test images of the other members,
    as far as they are here; nothing is downloaded, and what is not found is left out with a warning. All of
    them are preprocessed like the data set itself, to values in [0, 1].

    Args:
        dataset: what :func:`osculate.data.load` returned.
        seed: of the shuffled pixels.
        folder: the only folder to look into, or None for the usual places.

    Returns:
        Inputs of the same shape as the data set's, by name.

    Raises:
        ValueError: nothing is known to stand out from this data set.
    """
    maker = PARTNERS.get(dataset.name)
    if maker is None:
        raise ValueError(
            f"no out-of-distribution partners are known for {dataset.name!r}, only for"
            f" {', '.join(map(repr, PARTNERS))}; pass inputs of your own to the task instead"
        )
    return maker(dataset, Request(folder=folder, seed=seed, download=False))


def shuffled_pixels(images: Float[Tensor, "N *S"], generator: torch.Generator | None = None) -> Float[Tensor, "N *S"]:
    """The values of each image in a random order of its own: the histogram stays, the picture goes."""
    flat = images.flatten(1)
    order = torch.rand(flat.shape, generator=generator).argsort(1)
    return flat.gather(1, order.to(flat.device)).reshape(images.shape)


def _digits(dataset: Dataset, request: Request) -> Shifted:
    images = dataset.test[0]
    generator = torch.Generator().manual_seed(request.seed)
    return {
        "rotated digits": images.rot90(1, (-2, -1)),
        "shuffled pixels": shuffled_pixels(images, generator),
    }


def _family(dataset: Dataset, request: Request) -> Shifted:
    found: Shifted = {}
    for name, member in FAMILY.items():
        if name == dataset.name:
            continue
        try:
            found[member.title] = as_inputs(test_part(name, request)[0])
        except FileNotFoundError as error:
            warnings.warn(f"{member.title} is left out as an out-of-distribution set: {error}", stacklevel=3)
    return found


#: What makes the partners of each data set.
PARTNERS: Mapping[str, Callable[[Dataset, Request], Shifted]] = {
    "digits": _digits,
    **dict.fromkeys(FAMILY, _family),
}
