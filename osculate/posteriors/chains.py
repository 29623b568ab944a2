"""Posteriors made of Markov chains: samples of the weights, and diagnostics of the function."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.batches import require_finite
from osculate.inputs import Inputs, moved
from osculate.likelihoods import Likelihood, drawn_on
from osculate.parameters import Network
from osculate.posteriors import _diagnostics
from osculate.posteriors._base import Sampled


class Chains(Sampled):
    r"""q(θ) = (1/KS) Σ_k Σ_s δ(θ − θ_ks): the S draws of each of K Markov chains, with equal weight.

    Weights of a network are not identified (hidden units may be exchanged, and their signs), so that chains which
    disagree about them may well agree about the function: :meth:`r_hat` and :meth:`effective_sample_size` judge the
    outputs. [vehtari2021]

    Predictives mix as many draws as ``samples`` asks for, evenly spaced along all chains, or each once where there are
    no more; random numbers are not needed.

    Args:
        network: the network; ``model`` is it at these weights.
        likelihood: p(y|f).
        thetas: the draws, (K, S, P).

    Raises:
        ValueError: draws of another number of parameters, none at all, or one that is not finite.

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
                f"draws of shape {tuple(thetas.shape)} are not those of chains of this network: give (chains, draws, "
                f"{network.space.size:,}), one number for each of its parameters."
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
            x: inputs (N, ...).

        Raises:
            ValueError: fewer than four draws of each chain.

        Cost: K S forward passes; K S N C numbers in memory.
        """
        return _diagnostics.r_hat(self._functions(x))

    def effective_sample_size(self, x: Inputs) -> Float[Tensor, "N *C"]:
        """The number of independent draws that determine the centre of each output as well (bulk), of K S in all.

        Args:
            x: inputs (N, ...).

        Raises:
            ValueError: fewer than four draws of each chain.

        Cost: as that of :meth:`r_hat`.
        """
        return _diagnostics.effective_sample_size(self._functions(x))

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
