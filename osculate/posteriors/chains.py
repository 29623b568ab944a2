"""Posteriors made of Markov chains: samples of the weights, and diagnostics of the function.

The diagnostics of mixing are rank-normalised split R-hat and the bulk effective sample size. [vehtari2021] Their draws
are (K, S, ...): chains, draws of each, and any shape; each entry of that shape is diagnosed separately.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from osculate.batches import require_finite
from osculate.inputs import Inputs, moved
from osculate.likelihoods import Likelihood
from osculate.parameters import Network
from osculate.posteriors._base import Sampled
from osculate.randomness import drawn_on

#: Fewest draws of a chain for which a half of it has a variance.
FEWEST = 4


class Chains(Sampled):
    r"""q(θ) = (1/KS) Σ_k Σ_s δ(θ − θ_ks): the S draws of each of K Markov chains, with equal weight.

    Weights of a network are not identified (hidden units may be exchanged, and their signs), so that chains which
    disagree about them may well agree about the function: :meth:`r_hat` and :meth:`effective_sample_size` judge the
    outputs. [vehtari2021]

    Predictives mix as many draws as ``samples`` asks for, evenly spaced along all chains, or each once where there are
    no more; random numbers are not needed.

    Args:
        network: The network; ``model`` is the network at its own weights.
        likelihood: p(y|f).
        thetas: The draws, (K, S, P).

    Raises:
        ValueError: no draws, draws of another number of parameters, or a draw that is not finite.

    >>> import osculate as osc
    >>> network = osc.parameters.Network(torch.nn.Linear(2, 1), ["weight"])
    >>> q = Chains(network, osc.likelihoods.Gaussian(0.1), torch.randn(4, 50, 2))
    >>> q
    Chains(chains=4, draws=50, P=2, likelihood=Gaussian)
    >>> osc.predict(q, torch.zeros(3, 2), samples=20).mean.shape, q.r_hat(torch.ones(3, 2)).shape
    (torch.Size([3, 1]), torch.Size([3, 1]))
    """

    ways: ClassVar[tuple[str, ...]] = ("sampled",)

    def __init__(self, network: Network, likelihood: Likelihood, thetas: Float[Tensor, "K S P"]) -> None:
        if thetas.ndim != 3 or thetas.shape[-1] != network.space.size or thetas.numel() == 0:
            raise ValueError(
                f"draws of shape {tuple(thetas.shape)} are not those of chains of this network: pass (chains, draws, "
                f"{network.space.size:,}), with one entry for each of its parameters."
            )
        require_finite(thetas, "the draws")
        self.network, self.likelihood, self.thetas = network, likelihood, thetas

    @property
    def mean(self) -> Float[Tensor, " P"]:
        """The mean of the draws of each parameter, in the order of ``named_parameters()``."""
        return self.thetas.mean((0, 1))

    def variance(self) -> Float[Tensor, " P"]:
        """The variance of each parameter over all draws."""
        return self.thetas.flatten(0, 1).var(0, correction=0)

    def sample(self, n: int = 1, generator: torch.Generator | None = None) -> Float[Tensor, "n P"]:
        """``n`` of the draws at random, with replacement."""
        every = self.thetas.flatten(0, 1)
        chosen = torch.randint(len(every), (n,), generator=generator, device=drawn_on(every, generator))
        return every[chosen.to(every.device)]

    def draws(self, samples: int, generator: torch.Generator | None = None) -> Iterator[Callable[[Inputs], Tensor]]:
        """The network at draws that are evenly spaced along all chains; at each once where there are no more."""
        every = self.thetas.flatten(0, 1)
        samples = min(samples, len(every))
        for n in range(samples):
            yield self._at(every[(2 * n + 1) * len(every) // (2 * samples)])

    def r_hat(self, x: Inputs) -> Float[Tensor, "N *C"]:
        """Rank-normalised split R-hat of each output: 1 where the chains agree, and mixed badly above 1.01 to 1.05.

        Args:
            x: Inputs (N, ...).

        Raises:
            ValueError: fewer than four draws of each chain.

        Cost: K S forward passes; K S N C numbers in memory.
        """
        return r_hat(self._functions(x))

    def effective_sample_size(self, x: Inputs) -> Float[Tensor, "N *C"]:
        """The number of independent draws that determine the centre of each output as well (bulk), of K S in all.

        Args:
            x: Inputs (N, ...).

        Raises:
            ValueError: fewer than four draws of each chain.

        Cost: as that of :meth:`r_hat`.
        """
        return effective_sample_size(self._functions(x))

    @torch.no_grad()
    def _functions(self, x: Inputs) -> Float[Tensor, "K S N *C"]:
        """The outputs of every draw."""
        x = moved(x, self.network.device)
        outputs = torch.stack([self._at(theta)(x) for theta in self.thetas.flatten(0, 1)])
        return outputs.unflatten(0, self.thetas.shape[:2])

    def _at(self, theta: Float[Tensor, " P"]) -> Callable[[Inputs], Tensor]:
        return partial(self.network, theta=self.network.space.unflatten(theta))

    def to(self, device: Any = None, dtype: Any = None) -> "Chains":
        """The same posterior on another device or in another floating type."""
        network = self.network.to(device, dtype)
        return Chains(network, self.likelihood, self.thetas.to(network.device, network.state_dtype))

    def __repr__(self) -> str:
        chains, draws, size = self.thetas.shape
        return f"Chains(chains={chains}, draws={draws}, P={size:,}, likelihood={type(self.likelihood).__name__})"


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

    with P̂_t the sums of autocorrelations at neighbouring lags, of normal scores of the ranks of half chains, up to
    the first negative one, and made monotone (Geyer). At most K S log₁₀ K S; K S where all draws are equal.

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
    """Each chain as two, (2 K, S // 2, ...), in double precision; the middle draw of an odd number is left out."""
    size = draws.shape[1]
    if size < FEWEST:
        raise ValueError(f"diagnostics need at least {FEWEST} draws of each chain, got {size}: keep more draws.")
    half = size // 2
    return torch.cat([draws[:, :half], draws[:, size - half :]]).double()


def _normal_scores(draws: Float[Tensor, "K S *C"]) -> Float[Tensor, "K S *C"]:
    """Φ⁻¹ of the ranks among all draws; equal draws have their mean rank."""
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
