"""Diagnostics of mixing: rank-normalised split R-hat and the bulk effective sample size. [vehtari2021]

Draws are (K, S, ...): chains, draws of each, and any shape; every number of that shape is judged by itself.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

#: Draws of each chain below which a half of it has no variance.
FEWEST = 4


def r_hat(draws: Float[Tensor, "K S *C"]) -> Float[Tensor, "*C"]:
    r"""The width of all chains together relative to each half of one: 1 where they have mixed.

    .. math:: \hat R = \sqrt{\frac{S' - 1}{S'} + \frac{B}{S' W}}

    with W the mean variance within the 2 K half chains of S' draws and B / S' that of their means, all of normal scores
    of the ranks; the larger of those of the draws (bulk) and of their distances from the median (tails). 1 where all
    draws are equal.

    Args:
        draws: K chains of S draws.

    Raises:
        ValueError: fewer than four draws of each chain.

    >>> r_hat(torch.randn(4, 500, generator=torch.Generator().manual_seed(0))) < 1.01
    tensor(True)
    """
    halves = _halves(draws)
    centre = np.median(halves.flatten(0, 1).cpu().numpy(), axis=0)
    folded = (halves - torch.as_tensor(centre).to(halves)).abs()
    return torch.maximum(_ratio(_normal_scores(halves)), _ratio(_normal_scores(folded))).to(draws)


def effective_sample_size(draws: Float[Tensor, "K S *C"]) -> Float[Tensor, "*C"]:
    r"""The number of independent draws that would determine the centre of the distribution as well.

    .. math:: K S / \hat\tau, \qquad \hat\tau = -1 + 2 \sum_t \hat P_t

    with P̂_t the sums of autocorrelations at neighbouring lags, of normal scores of the ranks of half chains, as far as
    they are positive, and made monotone (Geyer). At most K S log₁₀ K S; K S where all draws are equal.

    Args:
        draws: K chains of S draws.

    Raises:
        ValueError: fewer than four draws of each chain.

    Cost: Fourier transforms of the chains.

    >>> 1500 < effective_sample_size(torch.randn(4, 500, generator=torch.Generator().manual_seed(0))) < 2500
    tensor(True)
    """
    scores = _normal_scores(_halves(draws))
    chains, size = scores.shape[:2]
    within, total = _variances(scores)
    spectrum = torch.fft.rfft(scores - scores.mean(1, keepdim=True), n=2 * size, dim=1)
    autocovariance = torch.fft.irfft(spectrum.abs().square(), n=2 * size, dim=1)[:, :size] / size  # at all lags
    covariance = autocovariance.mean(0)
    correlation = 1 - (within - covariance) / total.clamp(min=torch.finfo(total.dtype).tiny)
    correlation[0] = 1
    pairs = correlation[: size // 2 * 2].unflatten(0, (-1, 2)).sum(1)
    positive = (pairs > 0).cumprod(0)
    monotone = (pairs * positive).cummin(0).values
    tau = (2 * monotone.sum(0) - 1).clamp(min=1 / np.log10(chains * size))
    return torch.where(total > 0, chains * size / tau, chains * size).to(draws)


def _halves(draws: Float[Tensor, "K S *C"]) -> Float[Tensor, "..."]:
    """Each chain as two, (2 K, S // 2, ...), in double precision; of an odd one the middle draw is left out."""
    size = draws.shape[1]
    if size < FEWEST:
        raise ValueError(f"{size} draws of each chain say nothing of how it mixes: keep at least {FEWEST}.")
    half = size // 2
    return torch.cat([draws[:, :half], draws[:, size - half :]]).double()


def _normal_scores(draws: Float[Tensor, "K S *C"]) -> Float[Tensor, "K S *C"]:
    """Φ⁻¹ of the ranks among all draws, equal ones with their mean rank."""
    from scipy.stats import rankdata

    together = draws.flatten(0, 1)
    ranks = torch.from_numpy(rankdata(together.cpu().numpy(), axis=0)).to(draws)
    scores = torch.special.ndtri((ranks - 0.375) / (len(together) + 0.25))
    return scores.reshape(draws.shape)


def _variances(draws: Float[Tensor, "K S *C"]) -> tuple[Float[Tensor, "*C"], Float[Tensor, "*C"]]:
    """The mean variance within chains, W, and that of all together, (S − 1)/S W + B/S."""
    size = draws.shape[1]
    within = draws.var(1).mean(0)
    return within, (size - 1) / size * within + draws.mean(1).var(0)


def _ratio(draws: Float[Tensor, "K S *C"]) -> Float[Tensor, "*C"]:
    within, total = _variances(draws)
    return torch.where(total > 0, (total / within).sqrt(), 1.0)
