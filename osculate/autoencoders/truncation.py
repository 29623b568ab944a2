"""Codes that are cut to a few bits, and what their images lose by it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from osculate.autoencoders.autoencoder import VAE, require_fit
from osculate.autoencoders.checks import require_inputs
from osculate.autoencoders.code_priors import CodePrior
from osculate.autoencoders.representation import Representation
from osculate.checks import require_whole
from osculate.posteriors import Posterior

#: Bits for each number of a code, at most.
MOST = 16
#: A code this near to 0 or 1 counts as binary.
NEAR = 0.1


def truncated(z: Float[Tensor, "*N K"], bits: int, prior: CodePrior) -> Float[Tensor, "*N K"]:
    """Codes of which each number is one of 2^bits values: that of its cell of the prior.

    Args:
        z: codes.
        bits: for each number.
        prior: p(z), whose cells are taken.

    Raises:
        ValueError: bits that are no whole number from 1 to 16.

    >>> from osculate.autoencoders import SparseBeta, truncated
    >>> truncated(torch.tensor([[0.1, 0.45, 0.9]]), 1, SparseBeta())
    tensor([[0., 0., 1.]])
    """
    return _cut(z, bits, prior)[0]


def _cut(z: Tensor, bits: int, prior: CodePrior) -> tuple[Tensor, Int[Tensor, "*N K"]]:
    """And the numbers of the cells."""
    require_whole("bits", bits)
    if bits > MOST:
        raise ValueError(f"codes are cut to at most {MOST} bits a number, got bits={bits}: leave them as they are.")
    edges, values = (each.to(z.device) for each in prior.cells(bits))
    symbols = torch.bucketize(z.double().contiguous(), edges)
    return values[symbols].to(z), symbols


@dataclass(frozen=True)
class Distortion:
    """What images lose whose codes have some size: means over images.

    Args:
        bits: for each number of a code; infinite for codes that are not cut.
        rate: bits for an image, K times as many.
        entropy_bits: the sum over the numbers of a code of the entropy of their cells over the images, in bits for an
            image; more than a code of the symbols needs, as the numbers are no more than independent.
        distortion: squared error of the mean image, summed over its pixels.
        standard_error: of the distortion, by the images.
        nll: −log p(x|z) in nats for an image.
    """

    bits: float
    rate: float
    entropy_bits: float
    distortion: float
    standard_error: float
    nll: float


@dataclass(frozen=True)
class RateDistortion:
    """What :func:`rate_distortion` finds.

    Args:
        levels: one for each number of bits.
        continuous: of codes that are not cut.
        binary_share: of the numbers of all mean codes, those within 0.1 of 0 or 1; None where the prior is not for
            codes that are nearly binary.
    """

    levels: tuple[Distortion, ...]
    continuous: Distortion
    binary_share: float | None

    @property
    def rates(self) -> Float[Tensor, " B"]:
        """Bits for an image."""
        return torch.tensor([level.rate for level in self.levels], dtype=torch.double)

    @property
    def distortions(self) -> Float[Tensor, " B"]:
        """Squared error of an image."""
        return torch.tensor([level.distortion for level in self.levels], dtype=torch.double)


@torch.no_grad()
def rate_distortion(
    q: Representation | Posterior | Any,
    x: Shaped[Tensor, "N *D"],
    bits: Sequence[int] = (1, 2, 3, 4, 6, 8),
    batch_size: int = 500,
) -> RateDistortion:
    r"""How much of an image is kept by the mean of its code, cut to so many bits a number.

    .. math:: D(b) = \frac1N \sum_n \| x_n - \operatorname{E}[x \mid c_b(\operatorname{E} z_n)] \|^2

    with c_b the cells of the prior, which no image has a part in. The network is that at the mode, the first one of an
    ensemble.

    Args:
        q: a representation, or what makes one: a posterior over a :class:`VAE`, or what ``osc.train`` returned; of a
            network alone ``osc.posteriors.Point(net, likelihood)``.
        x: images.
        bits: for each number of a code, once for each level.
        batch_size: images at a time.

    Raises:
        TypeError: a network that is no VAE, whose codes have no prior.
        ValueError: no images, or bits out of their range.

    Cost: a pass of the encoder, and one of the decoder for each level.

    >>> from osculate.autoencoders import VAE, rate_distortion
    >>> net = VAE(nn.Linear(6, 4), nn.Linear(2, 6))
    >>> found = rate_distortion(osc.posteriors.Point(net, osc.likelihoods.Gaussian(0.5)), torch.rand(20, 6))
    >>> found.rates.tolist()
    [2.0, 4.0, 6.0, 8.0, 12.0, 16.0]
    """
    r = q if isinstance(q, Representation) else Representation(q)
    model, network = r.model, r.posterior.network
    if not isinstance(model, VAE):
        raise TypeError(
            f"codes are cut to the cells of their prior, and those of this {type(model).__name__} have none: train an "
            "osc.autoencoders.VAE."
        )
    require_inputs(x)
    require_whole("batch_size", batch_size)
    x = x.to(network.device, network.dtype)
    z = torch.cat([network({"centre": part}) for part in x.split(batch_size)])

    def level(number: float, codes: Tensor, entropy: float) -> Distortion:
        parts = zip(*_losses(r.posterior, codes, x, batch_size), strict=True)
        errors, nll = (torch.cat(each).double() for each in parts)
        deviation = float(errors.std(correction=0)) / max(1, len(x) - 1) ** 0.5
        return Distortion(number, number * z.shape[1], entropy, float(errors.mean()), deviation, float(nll.mean()))

    cut = [(number, *_cut(z, number, model.prior)) for number in bits]
    levels = tuple(level(float(number), codes, _entropy(symbols)) for number, codes, symbols in cut)
    share = float((z - z.clamp(0, 1).round()).abs().le(NEAR).double().mean()) if model.prior.nearly_binary else None
    return RateDistortion(levels, level(math.inf, z, math.inf), share)


def _losses(q: Posterior, z: Tensor, x: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Squared error and −log p(x|z) of each image, a batch at a time."""
    for codes, images in zip(z.split(batch_size), x.split(batch_size), strict=True):
        f = q.network({"decode": codes})
        require_fit(f, images)
        q.likelihood.check(f, images)
        error = (q.likelihood.distribution(f).mean - images).square().flatten(1).sum(1)
        yield error, -q.likelihood.log_prob(f, images)


def _entropy(symbols: Int[Tensor, "N K"]) -> float:
    """Σ_k of the entropy of a column, in bits."""
    shares = [column.unique(return_counts=True)[1].double() / len(column) for column in symbols.T]
    return sum(float(torch.special.entr(share).sum()) / math.log(2) for share in shares)
