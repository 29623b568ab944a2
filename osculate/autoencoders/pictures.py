"""Images that show what a decoder has learned: manifolds, interpolations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
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


@dataclass(frozen=True, eq=False)
class LatentMap:
    """Codes of data, and how unsure the decoder is around them; what ``osculate.plots.latent_map`` draws.

    Args:
        codes: of the data (N, 2).
        axes: the grid's values of the first latent coordinate (G1,) and of the second (G2,).
        deviation: of the images that the grid's codes are decoded to, (G2, G1); rows run along the second coordinate.
    """

    codes: np.ndarray
    axes: tuple[np.ndarray, np.ndarray]
    deviation: np.ndarray

    @classmethod
    def of(
        cls,
        r: Representation | Posterior,
        x: Shaped[Tensor, "N *D"],
        samples: int = 50,
        places: int = 32,
        margin: float = 0.3,
        batch_size: int = 500,
    ) -> "LatentMap":
        """That of some data, with the same random numbers each time.

        The deviation is that by the weights, the mean over the pixels of an image, in their units.

        Args:
            r: a representation with codes of two numbers, or a posterior that makes one.
            x: data.
            samples: networks drawn.
            places: along each axis.
            margin: by how much the plane is larger than the range of the codes, on each side.
            batch_size: data, and places, at a time.

        Raises:
            ValueError: codes of another length, or no data.

        Cost: ``samples`` passes of the encoder over the data, and of the decoder over ``places``² codes.

        >>> from osculate.autoencoders import Autoencoder
        >>> net = Autoencoder(nn.Linear(6, 2), nn.Linear(2, 6))
        >>> x = torch.randn(20, 6)
        >>> r = Representation(osc.laplace(net, osc.likelihoods.Gaussian(0.5), (x, x), prior=1.0))
        >>> LatentMap.of(r, x, samples=5, places=8).deviation.shape
        (8, 8)
        """
        if not len(x):
            raise ValueError("a map of codes needs data: pass at least one row.")
        if places < 2:
            raise ValueError(f"a map needs at least two places along each axis, got places={places}.")
        r = r if isinstance(r, Representation) else Representation(r)
        codes = r.encode(x, samples, _fixed(), batch_size=batch_size).mean
        if codes.shape[1:] != (2,):
            raise ValueError(
                f"a map needs codes of two numbers, and these have {codes[0].numel()}: train with latent=2."
            )
        range_ = codes.amax(0) - codes.amin(0)
        room = torch.where(range_ > 0, margin * range_, 1.0)  # equal codes still have surroundings
        ends = zip((codes.amin(0) - room).tolist(), (codes.amax(0) + room).tolist(), strict=True)
        first, second = (torch.linspace(low, high, places) for low, high in ends)
        grid = torch.cartesian_prod(second, first).flip(1).to(codes)
        deviation = torch.cat([_spread(r, part, samples) for part in grid.split(batch_size)])
        return cls(_array(codes), (_array(first), _array(second)), _array(deviation.reshape(places, places)))

    def contrast(self) -> float:
        """The mean deviation at places whose cell holds no code, over that at those that hold one.

        It is 1 where no place is random, or none is free of codes.
        """
        cells = [np.rint((c - a[0]) / (a[1] - a[0])).astype(int) for c, a in zip(self.codes.T, self.axes, strict=True)]
        taken = np.zeros(self.deviation.shape, bool)
        taken[cells[1], cells[0]] = True
        if not self.deviation.any() or taken.all():
            return 1.0
        away, at_codes = float(self.deviation[~taken].mean()), float(self.deviation[taken].mean())
        return away / at_codes if at_codes else math.inf


def _spread(r: Representation, codes: Float[Tensor, "G 2"], samples: int) -> Float[Tensor, " G"]:
    return r.decode(codes, samples, _fixed()).weight_variance.sqrt().flatten(1).mean(1)


def _fixed() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.double().cpu().numpy()
