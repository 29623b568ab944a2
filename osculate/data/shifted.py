"""Inputs that a classifier was not trained for, to test whether it notices."""

import math
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from osculate.data.dataset import Dataset, Request, as_inputs
from osculate.data.mnist import FAMILY, family_part
from osculate.data.photographs import as_jpeg, celeba

T = TypeVar("T")
Shifted = dict[str, Tensor]

#: Images of other sets that stand beside CIFAR-10: thousands of colour images take memory, and more change nothing.
LARGEST_CIFAR_PARTNER = 2_000


def out_of_distribution(dataset: Dataset, seed: int = 0, folder: str | Path | None = None) -> Shifted:
    """Sets of inputs that stand out from a data set, by name.

    For ``digits``: "rotated digits", its test images turned by 90 degrees (0, 1 and 8 can still be read,
    which is why no score reaches an AUROC of 1), and "shuffled pixels", its test images with the pixels of
    each image in an order of its own. For a member of the MNIST family: the test images of the other members,
    as far as they are here; nothing is downloaded, and what is not found is left out with a warning. For CIFAR-10:
    "CelebA", faces shrunk to 32 × 32 pixels (for non-commercial research only), the MNIST family as grey images
    with a black border of two pixels, at most 2,000 of each, and "shuffled pixels"; for its JPEG version all of
    them compressed alike, so that artefacts give nothing away. All of them are preprocessed like the data set
    itself, to values in [0, 1].

    Args:
        dataset: A data set from :func:`osculate.data.load`.
        seed: Seed of the shuffled pixels.
        folder: The only folder to look into, or None for the usual places.

    Returns:
        Inputs of the same shape as the data set's, by name.

    Raises:
        ValueError: nothing is known to stand out from this data set.
    """
    maker = PARTNERS.get(dataset.name)
    if maker is None:
        raise ValueError(
            f"no out-of-distribution partners are known for {dataset.name!r}, only for"
            f" {', '.join(map(repr, PARTNERS))}; pass inputs of your own to the task instead."
        )
    return maker(dataset, Request(folder=folder, seed=seed, download=False))


def shuffled_pixels(images: Float[Tensor, "N *S"], generator: torch.Generator | None = None) -> Float[Tensor, "N *S"]:
    """The values of each image in a random order of its own: the histogram stays, the picture goes."""
    flat = images.flatten(1)
    order = torch.rand(flat.shape, generator=generator).argsort(1)
    return flat.gather(1, order.to(flat.device)).reshape(images.shape)


def rotated(images: Float[Tensor, "N *S"], degrees: float | int) -> Float[Tensor, "N *S"]:
    """Turn images about their centre, anticlockwise as one looks at them.

    Values between pixels are interpolated bilinearly, and what comes in from outside is zero.

    Args:
        images: (N, C, height, width) with any number of channels.
        degrees: The angle; a quarter turn of square images is exact.

    Raises:
        ValueError: the inputs are no images, or the angle is not finite.

    >>> rotated(torch.eye(3)[None, None], 90)[0, 0].round()
    tensor([[0., 0., 1.],
            [0., 1., 0.],
            [1., 0., 0.]])
    """
    if images.ndim != 4:
        raise ValueError(f"images have shape (N, C, height, width), not {tuple(images.shape)}.")
    if not math.isfinite(degrees):
        raise ValueError(f"degrees is {degrees}: give a finite angle.")
    height, width = images.shape[-2:]
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # coordinates go from -1 to 1 over height and over width, so a turn of other than square images also scales
    turn = images.new_tensor([[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]])
    grid = F.affine_grid(turn.expand(len(images), 2, 3), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def beside_digits(dataset: Dataset, request: Request) -> Shifted:
    """The test images turned, and their pixels shuffled."""
    images = dataset.test[0]
    generator = torch.Generator().manual_seed(request.seed)
    return {
        "rotated digits": images.rot90(1, (-2, -1)),
        "shuffled pixels": shuffled_pixels(images, generator),
    }


def beside_family(dataset: Dataset, request: Request) -> Shifted:
    """The other members of the MNIST family."""
    return {title: as_inputs(images) for title, images in _members(request, dataset.name).items()}


def beside_cifar(dataset: Dataset, request: Request) -> Shifted:
    """Faces, the MNIST family, and the test images with their pixels shuffled."""
    faces = _found({"CelebA": partial(celeba, "test", request.folder)})
    grey = {
        title: F.pad(images[:LARGEST_CIFAR_PARTNER], (2, 2, 2, 2)).expand(-1, 3, -1, -1)
        for title, images in _members(request).items()
    }
    own = shuffled_pixels(dataset.test[0][:LARGEST_CIFAR_PARTNER], torch.Generator().manual_seed(request.seed))
    partners = {
        # each pixel is the mean of 2 × 2 pixels of the copy at 64 × 64
        **{
            title: (255 * F.avg_pool2d(found.images[:LARGEST_CIFAR_PARTNER], 2)).round().byte()
            for title, found in faces.items()
        },
        **grey,
        "shuffled pixels": (255 * own).round().byte(),
    }
    if dataset.name == "cifar10_jpeg":
        partners = {title: as_jpeg(images) for title, images in partners.items()}
    return {title: as_inputs(images) for title, images in partners.items()}


def _members(request: Request, but: str = "") -> dict[str, Tensor]:
    """The test images of the MNIST family, uint8 (N, 1, 28, 28), as far as they are here."""
    readers = {m.title: partial(family_part, name, 1, request) for name, m in FAMILY.items() if name != but}
    return {title: images for title, (images, _) in _found(readers).items()}


def _found(readers: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """Read each; what is not there is left out with a warning."""
    found = {}
    for title, read in readers.items():
        try:
            found[title] = read()
        except FileNotFoundError as error:
            warnings.warn(f"{title} is left out as an out-of-distribution set: {error}", stacklevel=5)
    return found


#: What makes the partners of each data set.
PARTNERS: Mapping[str, Callable[[Dataset, Request], Shifted]] = {
    "digits": beside_digits,
    **dict.fromkeys(FAMILY, beside_family),
    **dict.fromkeys(("cifar10", "cifar10_jpeg"), beside_cifar),
}
