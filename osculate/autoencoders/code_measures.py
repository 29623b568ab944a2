"""Measures of codes: the dimensions that an encoder uses, and the distortion of images by quantised codes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from osculate.autoencoders.autoencoder import VAE, Autoencoder, require_counts, require_fit, require_inputs
from osculate.autoencoders.bounds import at_mean
from osculate.autoencoders.codes import CodePrior
from osculate.autoencoders.representation import Representation
from osculate.checks import require_positive, require_whole
from osculate.parameters import Network
from osculate.posteriors import Posterior

#: Largest number of bits per code dimension.
LARGEST_BITS = 16
#: A code this near to 0 or 1 counts as binary.
NEAR = 0.1


@dataclass(frozen=True, eq=False)
class ActiveUnits:
    """Code dimensions whose mean varies over data.

    Args:
        variances: The variance of E_q z_k over the data, for each dimension.
        threshold: The variance above which a dimension counts as active.
    """

    variances: Float[Tensor, " K"]
    threshold: float

    @property
    def active(self) -> Bool[Tensor, " K"]:
        """True for each active dimension."""
        return self.variances > self.threshold

    @property
    def count(self) -> int:
        """The number of active dimensions."""
        return int(self.active.sum())

    def __repr__(self) -> str:
        return f"ActiveUnits(count={self.count} of {len(self.variances)}, threshold={self.threshold:g})"


@torch.no_grad()
def active_units(
    q: Any, x: Shaped[Tensor, "N *D"], threshold: float = 0.01, batch_size: int | None = None
) -> ActiveUnits:
    r"""Count the code dimensions that an encoder uses. [burda2016, section 5.2]

    .. math:: \operatorname{Cov}_x\big(\operatorname{E}_{q(z|x)} z_k\big) > 0.01

    A dimension that the encoder leaves at the prior has the same mean for all data.

    Args:
        q: An :class:`Autoencoder` or :class:`VAE`, a posterior over one (its mean is taken), or the result of
            ``osc.train``.
        x: Data, at least two.
        threshold: Smallest variance of an active dimension.
        batch_size: Rows at a time; by default all at once.

    Raises:
        TypeError: ``q`` is not over an autoencoder, or the data are not floating point.
        ValueError: fewer than two rows, NaN in them, or a threshold that is not positive.

    Cost: one pass of the encoder over the data.

    >>> from osculate.autoencoders import VAE, active_units
    >>> net = VAE(nn.Linear(6, 4), nn.Linear(2, 6))
    >>> with torch.no_grad():
    ...     net.encoder.weight[1] = 0.0
    >>> active_units(net, torch.randn(50, 6))
    ActiveUnits(count=1 of 2, threshold=0.01)
    """
    require_inputs(x)
    require_positive("the threshold", threshold)
    require_counts(batch_size=batch_size)
    if len(x) < 2:
        raise ValueError(f"a variance over data needs at least two rows, got {len(x)}: pass more.")
    if isinstance(q, Autoencoder):
        network = Network(q, ())
        network.module.eval()
    else:
        network = at_mean(Representation(q).posterior)
    x = x.to(network.device, network.dtype)
    means = torch.cat([network({"centre": part}) for part in x.split(batch_size or len(x))])
    if not bool(means.isfinite().all()):
        raise FloatingPointError(
            "the encoder returns NaN or infinite codes: check its weights, or train with a smaller learning rate."
        )
    return ActiveUnits(means.double().var(0), threshold)


def truncated(z: Float[Tensor, "*N K"], bits: int, prior: CodePrior) -> Float[Tensor, "*N K"]:
    """Quantise each code dimension to one of 2^bits values, by the cells of the prior.

    Args:
        z: Codes.
        bits: Bits per code dimension.
        prior: p(z), which defines the cells.

    Raises:
        ValueError: ``bits`` is not an integer from 1 to 16.

    >>> from osculate.autoencoders import SparseBeta, truncated
    >>> truncated(torch.tensor([[0.1, 0.45, 0.9]]), 1, SparseBeta())
    tensor([[0., 0., 1.]])
    """
    return _cut(z, bits, prior)[0]


def _cut(z: Tensor, bits: int, prior: CodePrior) -> tuple[Tensor, Int[Tensor, "*N K"]]:
    """Return quantised codes, and the indices of their cells."""
    require_whole("bits", bits)
    if bits > LARGEST_BITS:
        raise ValueError(
            f"codes are quantised to at most {LARGEST_BITS} bits per dimension, got bits={bits}: do not quantise."
        )
    edges, values = (each.to(z.device) for each in prior.cells(bits))
    symbols = torch.bucketize(z.double().contiguous(), edges)
    return values[symbols].to(z), symbols


@dataclass(frozen=True)
class Distortion:
    """Mean distortion of images at one rate of their codes.

    Args:
        bits: Bits per code dimension; infinite for codes that are not quantised.
        rate: Bits per image, K times ``bits``.
        entropy_bits: Entropy of the cells over the images, summed over code dimensions, in bits per image; an upper
            bound on the joint entropy.
        distortion: Squared error of the mean image, summed over its pixels.
        standard_error: Standard error of the distortion, over images.
        nll: −log p(x|z) in nats per image.
    """

    bits: float
    rate: float
    entropy_bits: float
    distortion: float
    standard_error: float
    nll: float


@dataclass(frozen=True)
class RateDistortion:
    """Result of :func:`rate_distortion`.

    Args:
        levels: Distortion for each number of bits.
        continuous: Distortion of codes that are not quantised.
        binary_share: Share of the entries of all mean codes within 0.1 of 0 or 1; None unless the prior is nearly
            binary.
    """

    levels: tuple[Distortion, ...]
    continuous: Distortion
    binary_share: float | None

    @property
    def rates(self) -> Float[Tensor, " B"]:
        """Bits per image, for each level."""
        return torch.tensor([level.rate for level in self.levels], dtype=torch.double)

    @property
    def distortions(self) -> Float[Tensor, " B"]:
        """Squared error per image, for each level."""
        return torch.tensor([level.distortion for level in self.levels], dtype=torch.double)


@torch.no_grad()
def rate_distortion(
    q: Representation | Posterior | Any,
    x: Shaped[Tensor, "N *D"],
    bits: Sequence[int] = (1, 2, 3, 4, 6, 8),
    batch_size: int = 500,
) -> RateDistortion:
    r"""Measure the distortion of images by quantisation of their mean codes.

    .. math:: D(b) = \frac1N \sum_n \| x_n - \operatorname{E}[x \mid c_b(\operatorname{E} z_n)] \|^2

    with c_b the quantisation by the cells of the prior, which do not depend on the images. The network is the one
    at the mode, or the first of an ensemble.

    Args:
        q: A representation, a posterior over a :class:`VAE`, or the result of ``osc.train``; for a network
            ``osc.posteriors.Point(net, likelihood)``.
        x: Images.
        bits: Bits per code dimension of each level.
        batch_size: Images at a time.

    Raises:
        TypeError: the network is not a VAE.
        ValueError: no images, or ``bits`` out of range.

    Cost: a pass of the encoder, and one of the decoder for each level.

    >>> from osculate.autoencoders import VAE, rate_distortion
    >>> net = VAE(nn.Linear(6, 4), nn.Linear(2, 6))
    >>> found = rate_distortion(osc.posteriors.Point(net, osc.likelihoods.Gaussian(0.5)), torch.rand(20, 6))
    >>> found.rates.tolist()
    [2.0, 4.0, 6.0, 8.0, 12.0, 16.0]
    """
    r = q if isinstance(q, Representation) else Representation(q)
    model, network, likelihood = r.model, r.posterior.network, r.posterior.likelihood
    if not isinstance(model, VAE):
        raise TypeError(
            f"codes are quantised by the cells of their prior, and this {type(model).__name__} has no prior: train an "
            "osc.autoencoders.VAE."
        )
    require_inputs(x)
    require_whole("batch_size", batch_size)
    x = x.to(network.device, network.dtype)
    z = torch.cat([network({"centre": part}) for part in x.split(batch_size)])

    def level(number: float, codes: Tensor, entropy: float) -> Distortion:
        parts = []
        for z_part, images in zip(codes.split(batch_size), x.split(batch_size), strict=True):
            f = network({"decode": z_part})
            require_fit(f, images)
            likelihood.check(f, images)
            error = (likelihood.distribution(f).mean - images).square().flatten(1).sum(1)
            parts.append((error, -likelihood.log_prob(f, images)))
        errors, nll = (torch.cat(each).double() for each in zip(*parts, strict=True))
        deviation = float(errors.std(correction=0)) / max(1, len(x) - 1) ** 0.5
        return Distortion(number, number * z.shape[1], entropy, float(errors.mean()), deviation, float(nll.mean()))

    levels = []
    for number in bits:
        codes, symbols = _cut(z, number, model.prior)
        shares = [column.unique(return_counts=True)[1].double() / len(column) for column in symbols.T]
        entropy = sum(float(torch.special.entr(share).sum()) / math.log(2) for share in shares)
        levels.append(level(float(number), codes, entropy))
    share = float((z - z.clamp(0, 1).round()).abs().le(NEAR).double().mean()) if model.prior.nearly_binary else None
    return RateDistortion(tuple(levels), level(math.inf, z, math.inf), share)
