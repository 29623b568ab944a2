"""Baseline error bars without a linearised network."""

import copy
import math
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.checks import require_positive, require_whole
from osculate.inverse.dip import DeepImagePrior, FittedImage
from osculate.inverse.image_noise import image_noise
from osculate.inverse.operators import LinearOperator
from osculate.networks import SkipUNet
from osculate.posteriors.images import DrawnImage, IndependentImage
from osculate.progress import track
from osculate.randomness import seeded


def isotropic(operator: LinearOperator, image: Float[Tensor, "H W"], noise: float = 1.0) -> IndependentImage:
    """The same error bar for every pixel, at most 1/2, from the noise of the data: see ``image_noise``.

    Args:
        operator: A.
        image: The reconstruction, with values in [0, 1].
        noise: σ of the data; 1 by convention, or the level found by the evidence.

    Raises:
        ValueError: an image of another shape, or a noise that is not positive.
    """
    require_positive("the noise (a standard deviation, in the units of the measurements)", noise)
    if not isinstance(image, Tensor) or tuple(image.shape) != operator.image_shape:
        found = tuple(image.shape) if isinstance(image, Tensor) else type(image).__name__
        raise ValueError(f"image must be a tensor of shape {operator.image_shape} for {operator!r}, got {found}.")
    return IndependentImage(image, torch.full_like(image, image_noise(operator, noise)).square())


def mc_dropout(
    operator: LinearOperator,
    data: Tensor,
    noise: float | None = None,
    prior: DeepImagePrior | None = None,
    dropout: float = 0.05,
    samples: int = 100,
    seed: int = 0,
    progress: bool = False,
) -> tuple[FittedImage, DrawnImage]:
    """A deep image prior with dropout also after training: the spread of its images around their mean. [gal2016]

    Args:
        operator: A.
        data: y.
        noise: σ, None if unknown.
        prior: Training settings; the network is replaced by one with dropout.
        dropout: Probability that a channel is dropped after a 3 × 3 convolution.
        samples: Number of drawn images.
        seed: Seed of weights and dropped channels.
        progress: Show a bar.

    Raises:
        ValueError: fewer than two samples, or a probability that is not within (0, 1).
    """
    require_whole("samples", samples, 2)
    if not 0 < dropout < 1:
        raise ValueError(f"dropout must be a probability above 0 and below 1, got {dropout!r}.")
    with seeded(seed):
        network = SkipUNet(dropout=dropout)
    fitted = replace(prior or DeepImagePrior(), network=network).fit(operator, data, noise, seed, progress)
    with torch.no_grad(), seeded(seed):
        active = fitted.network.train()
        draws = torch.stack([active(fitted.input[None, None])[0, 0] for _ in range(samples)])
        active.eval()
    return fitted, DrawnImage(draws.mean(0), draws, image_noise(operator, fitted.level(operator, data, noise)))


def ensemble(
    operator: LinearOperator,
    data: Tensor,
    noise: float | None = None,
    prior: DeepImagePrior | None = None,
    members: int = 5,
    seed: int = 0,
    progress: bool = False,
) -> DrawnImage:
    """Deep image priors from several initial weights: the spread of their images. [lakshminarayanan2017]

    Its draws are the members' images with deviations from their mean scaled by √(M / (M − 1)), which corrects the
    spread around a sample mean.

    Args:
        operator: A.
        data: y.
        noise: σ, None if unknown.
        prior: Training settings of each member.
        members: Number of members, at least two; each has its own weights, redrawn if a network is given.
        seed: Seed of the first member; the others count up from it.
        progress: Show a bar.
    """
    require_whole("members", members, 2)
    how = prior or DeepImagePrior()
    fits = []
    for number in track(range(members), "ensemble", members, progress):
        network = copy.deepcopy(how.network)
        with seeded(seed + number):  # the weights of a given network are redrawn
            for layer in [] if network is None else network.modules():
                if callable(draw := getattr(layer, "reset_parameters", None)):
                    draw()
        fits.append(replace(how, network=network).fit(operator, data, noise, seed + number))
    images = torch.stack([fitted.image for fitted in fits])
    mean = images.mean(0)
    spread = mean + (images - mean) * math.sqrt(members / (members - 1))
    return DrawnImage(mean, spread, image_noise(operator, fits[0].level(operator, data, noise)))
