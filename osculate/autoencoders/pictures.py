"""Arrays for figures of autoencoders: manifolds, interpolations, and maps of two-dimensional codes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from osculate.autoencoders.autoencoder import VAE, require_counts
from osculate.autoencoders.codes import quantiles
from osculate.autoencoders.representation import Representation
from osculate.posteriors import Posterior

#: Networks drawn for a figure, if the weights are random, and decoded examples around a map.
SAMPLES, EXAMPLES = 20, 16


def manifold(
    r: Representation | Posterior, places: int = 20, samples: int = SAMPLES, generator: torch.Generator | None = None
) -> Float[Tensor, "places places *D"]:
    r"""Mean images of a grid of two-dimensional codes, z = F⁻¹(u) with u at the centres of equal cells of (0, 1)².

    The cells have equal probability under the prior, so that the grid shows images in proportion to their probability.

    Args:
        r: A representation by a :class:`VAE` with two-dimensional codes, or a posterior over one.
        places: Images along each side.
        samples: Networks drawn, if the weights are random.
        generator: Source of random numbers.

    Returns:
        The images: rows along the second code, columns along the first, both rising.

    Raises:
        ValueError: a network without a prior of codes, codes of another size, or ``places`` below 1.

    Cost: ``places``² passes of the decoder for each network.

    >>> from osculate.autoencoders import VAE, manifold
    >>> net = VAE(nn.Linear(6, 4), nn.Linear(2, 6))
    >>> manifold(osc.posteriors.Point(net, osc.likelihoods.Gaussian(0.5)), places=5).shape
    torch.Size([5, 5, 6])
    """
    r = r if isinstance(r, Representation) else Representation(r)
    require_counts(places=places)
    if not isinstance(r.model, VAE):
        raise ValueError("a manifold needs a prior of the codes, which a plain autoencoder does not have: train a VAE.")
    if r.model.code_size() != 2:
        raise ValueError(
            f"a manifold needs two-dimensional codes, and these have {r.model.latent} dimensions: train with latent=2."
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
        r: A representation, or a posterior over an autoencoder.
        x: Images.
        pairs: Indices of the first and the last image.
        steps: Images on each line, ends included.
        samples: Networks drawn, if the weights are random.
        generator: Source of random numbers.

    Raises:
        ValueError: fewer than two steps, no pairs, or an index out of range.

    Cost: ``steps`` passes of the decoder for each pair and network.

    >>> from osculate.autoencoders import VAE, interpolations
    >>> net = VAE(nn.Linear(6, 4), nn.Linear(2, 6))
    >>> q = osc.posteriors.Point(net, osc.likelihoods.Gaussian(0.5))
    >>> interpolations(q, torch.rand(3, 6), [(0, 1), (1, 2)], steps=4).shape
    torch.Size([2, 4, 6])
    """
    r = r if isinstance(r, Representation) else Representation(r)
    if steps < 2 or not pairs:
        raise ValueError(f"an interpolation needs at least one pair and two steps, got {len(pairs)} and {steps}.")
    if wrong := [end for pair in pairs for end in pair if not -len(x) <= end < len(x)]:
        raise ValueError(f"index {wrong[0]} of a pair is out of range for {len(x)} images.")
    z = r.encode(x, samples, generator).mean
    first, last = (z[[pair[end] for pair in pairs]].unsqueeze(1) for end in (0, 1))
    way = first + torch.linspace(0, 1, steps).to(z)[:, None] * (last - first)
    return r.decode(way.flatten(0, 1), samples, generator).mean.unflatten(0, way.shape[:2])


@dataclass(frozen=True, eq=False)
class LatentMap:
    """Codes of data and the uncertainty of the decoder around them, drawn by ``osculate.plots.latent_map``.

    Args:
        codes: Codes of the data (N, 2).
        axes: Grid values of the first latent coordinate (G1,) and of the second (G2,).
        deviation: Standard deviation of the images of the grid's codes, (G2, G1), a row for each value of the second
            coordinate.
        spread: Standard deviations of the codes (N, 2), if they are known.
        examples: Indices (E,) of a few data in all directions from the middle, these data (E, *D), and the decoded
            images (E, *D) of their codes.
    """

    codes: np.ndarray
    axes: tuple[np.ndarray, np.ndarray]
    deviation: np.ndarray
    spread: np.ndarray | None = None
    examples: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

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
        """Compute the map of some data, with fixed random numbers.

        The deviation is the standard deviation by the weights, averaged over the pixels of an image, in their units.

        Args:
            r: A representation with two-dimensional codes, or a posterior over such an autoencoder.
            x: Data.
            samples: Networks drawn.
            places: Grid points along each axis.
            margin: Extension of the grid beyond the range of the codes on each side, relative to this range.
            batch_size: Inputs, and grid points, at a time.

        Raises:
            ValueError: codes of another size, no data, or ``places`` below 2.

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
            raise ValueError(f"a map needs at least two grid points along each axis, got places={places}.")
        r = r if isinstance(r, Representation) else Representation(r)
        encoded = r.encode(x, samples, _fixed(), batch_size=batch_size)
        codes = encoded.mean
        if codes.shape[1:] != (2,):
            raise ValueError(
                f"a map needs two-dimensional codes, and these have {codes[0].numel()} dimensions: train with latent=2."
            )
        range_ = codes.amax(0) - codes.amin(0)
        room = torch.where(range_ > 0, margin * range_, 1.0)  # equal codes still get a margin
        ends = zip((codes.amin(0) - room).tolist(), (codes.amax(0) + room).tolist(), strict=True)
        first, second = (torch.linspace(low, high, places) for low, high in ends)
        grid = torch.cartesian_prod(second, first).flip(1).to(codes)
        images = (r.decode(part, samples, _fixed()) for part in grid.split(batch_size))
        deviation = torch.cat([each.weight_variance.sqrt().flatten(1).mean(1) for each in images])
        chosen = around(_array(codes))
        return cls(
            _array(codes),
            (_array(first), _array(second)),
            _array(deviation.reshape(places, places)),
            _array(encoded.variance.sqrt()),
            (chosen, _array(x[chosen]), _array(r.decode(codes[chosen], samples, _fixed()).mean)),
        )

    def contrast(self) -> float:
        """The ratio of the mean deviation in cells without codes to that in cells with codes.

        It is 1 if no deviation is positive, or every cell contains a code.
        """
        cells = [np.rint((c - a[0]) / (a[1] - a[0])).astype(int) for c, a in zip(self.codes.T, self.axes, strict=True)]
        taken = np.zeros(self.deviation.shape, bool)
        taken[cells[1], cells[0]] = True
        if not self.deviation.any() or taken.all():
            return 1.0
        away, at_codes = float(self.deviation[~taken].mean()), float(self.deviation[taken].mean())
        return away / at_codes if at_codes else math.inf


def around(codes: Float[np.ndarray, "N 2"], number: int = EXAMPLES) -> Shaped[np.ndarray, " E"]:
    """Indices of at most ``number`` codes, one in each direction that has some, three quarters of the way out."""
    range_ = np.ptp(codes, axis=0)
    x, y = ((codes - np.median(codes, axis=0)) / np.where(range_ > 0, range_, 1.0)).T
    radius, sector = np.hypot(x, y), np.rint(np.arctan2(y, x) * number / (2 * np.pi)).astype(int) % number
    groups = [np.flatnonzero(sector == each) for each in range(number)]
    return np.array([each[np.argsort(radius[each])[3 * len(each) // 4]] for each in groups if len(each)])


def _fixed() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.double().cpu().numpy()
