"""Images that show what a decoder has learned: manifolds, interpolations."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from osculate.autoencoders.autoencoder import VAE
from osculate.autoencoders.checks import require_some
from osculate.autoencoders.code_priors import quantiles
from osculate.autoencoders.representation import Representation
from osculate.posteriors import Posterior

#: Networks drawn for a picture, where the weights are random.
SAMPLES = 20


def manifold(
    r: Representation | Posterior, places: int = 20, samples: int = SAMPLES, generator: torch.Generator | None = None
) -> Float[Tensor, "places places *D"]:
    r"""Mean images of a grid of two-dimensional codes, z = F⁻¹(u) with u at the centres of equal cells of (0, 1)².

    The prior gives each cell the same probability, so that the picture shows what the model generates, as often as it
    does. At the ends of (0, 1) the code would be infinite.

    Args:
        r: a representation with codes of two numbers that have a prior, or a posterior over a :class:`VAE`.
        places: along each side.
        samples: networks drawn, where the weights are random.
        generator: for them.

    Returns:
        The images: rows along the second code, columns along the first, both rising.

    Raises:
        ValueError: a network without prior, codes of another length, or no place.

    Cost: ``places``² passes of the decoder for each network.

    >>> from osculate.autoencoders import VAE, manifold
    >>> net = VAE(nn.Linear(6, 4), nn.Linear(2, 6))
    >>> manifold(osc.posteriors.Point(net, osc.likelihoods.Gaussian(0.5)), places=5).shape
    torch.Size([5, 5, 6])
    """
    r = r if isinstance(r, Representation) else Representation(r)
    require_some(places=places)
    if not isinstance(r.model, VAE):
        raise ValueError("a manifold follows the prior of the codes, and a plain autoencoder has none: train a VAE.")
    if r.model.code_size() != 2:
        raise ValueError(
            f"a manifold needs codes of two numbers, and these have {r.model.latent}: train with latent=2."
        )
    each = r.model.prior.inverse_cdf(quantiles(places))
    grid = torch.cartesian_prod(each, each).flip(1).float()
    return r.decode(grid, samples, generator).mean.unflatten(0, (places, places))


def interpolations(
    r: Representation | Posterior,
    x: Shaped[Tensor, "N *D"],
    pairs: Sequence[tuple[int, int]],
    steps: int = 10,
    samples: int = SAMPLES,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "pairs steps *D"]:
    r"""Mean images along the straight line between the mean codes of two images, ends included.

    Args:
        r: a representation, or a posterior over an autoencoder.
        x: images.
        pairs: numbers of the first and the last one.
        steps: images on the way, the first and the last included.
        samples: networks drawn, where the weights are random.
        generator: for them.

    Raises:
        ValueError: fewer than two steps, or no pair.

    Cost: ``steps`` passes of the decoder for each pair and network.

    >>> from osculate.autoencoders import VAE, interpolations
    >>> net = VAE(nn.Linear(6, 4), nn.Linear(2, 6))
    >>> q = osc.posteriors.Point(net, osc.likelihoods.Gaussian(0.5))
    >>> interpolations(q, torch.rand(3, 6), [(0, 1), (1, 2)], steps=4).shape
    torch.Size([2, 4, 6])
    """
    r = r if isinstance(r, Representation) else Representation(r)
    if steps < 2 or not pairs:
        raise ValueError(f"an interpolation needs a pair of images and two steps, got {len(pairs)} and {steps}.")
    if wrong := [end for pair in pairs for end in pair if not -len(x) <= end < len(x)]:
        raise ValueError(f"there is no image {wrong[0]} among {len(x)}: a pair holds the numbers of two of them.")
    z = r.encode(x, samples, generator).mean
    first, last = (z[[pair[end] for pair in pairs]].unsqueeze(1) for end in (0, 1))
    way = first + torch.linspace(0, 1, steps).to(z)[:, None] * (last - first)
    return r.decode(way.flatten(0, 1), samples, generator).mean.unflatten(0, way.shape[:2])
