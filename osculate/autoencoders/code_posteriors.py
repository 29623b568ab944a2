"""q(z|x): how a code is distributed, given the numbers that an encoder gives for an image."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import (
    Distribution,
    Independent,
    Normal,
    SigmoidTransform,
    TransformedDistribution,
    kl_divergence,
)

from osculate.autoencoders.code_priors import CodePrior
from osculate.likelihoods import drawn_on
from osculate.likelihoods._quadrature import normal_nodes

#: Draws from which moments are taken where they have no closed form.
DRAWS = 64


class CodePosterior(nn.Module, ABC):
    r"""q(z|h), with z = g(h, ε) differentiable in h. [kingma2014, section 2.4]

    A subclass writes :meth:`latent`, :meth:`noise` and :meth:`transform`, and :meth:`distribution`, or :meth:`draw`
    where the density is not known.
    """

    #: Whether log q of a draw is known, or bounded so that the bound stays one.
    has_density: ClassVar[bool] = True
    #: Estimators with several draws inside the logarithm that have the right gradient: "iwae" needs that of log q by
    #: its parameters, "dreg" the one through z alone, and a density of z that is computed from z.
    inside: ClassVar[tuple[str, ...]] = ("iwae", "dreg")
    #: Whether the codes and densities that one call draws for a datum are independent.
    independent: ClassVar[bool] = True

    @abstractmethod
    def latent(self, numbers: int) -> int:
        """K, of an encoder that gives so many numbers.

        Raises:
            ValueError: no code is made of so many.
        """

    @abstractmethod
    def noise(self, h: Float[Tensor, "N R"]) -> int:
        """The length of ε ~ N(0, I)."""

    @abstractmethod
    def transform(self, h: Float[Tensor, "N R"], noise: Float[Tensor, "S #N E"]) -> Float[Tensor, "S N K"]:
        """g(h, ε)."""

    @abstractmethod
    def distribution(self, h: Float[Tensor, "N R"]) -> Distribution:
        """q(z|h), one code (K,) for each datum."""

    def draw(
        self, h: Float[Tensor, "N R"], prior: CodePrior, samples: int = 1, path_only: bool = False
    ) -> tuple[Float[Tensor, "S N K"], Float[Tensor, "S N"]]:
        """Codes, and log q(z|h) − log p(z) of each.

        Args:
            h: numbers of the encoder.
            prior: p(z).
            samples: S.
            path_only: whether log q is differentiated through z alone, and not through its parameters as well: what is
                left out has expectation zero. [roeder2017]
        """
        z = self.codes(h, samples=samples)
        if not path_only:
            return z, self.distribution(h).log_prob(z) - prior.over(z).log_prob(z)
        with frozen(self):  # a flow looks at its parameters where the density is taken, not where q is made
            return z, self.distribution(h.detach()).log_prob(z) - prior.over(z).log_prob(z)

    def divergence(self, h: Float[Tensor, "N R"], prior: CodePrior) -> Float[Tensor, " N"] | None:
        """KL(q‖p) in nats, where it has a closed form."""
        return None

    def extra_loss(self, h: Float[Tensor, "N R"], prior: CodePrior) -> Float[Tensor, ""] | float:
        """What parameters of its own descend beside the bound, where the density is not known; nothing."""
        return 0.0

    def mean(self, h: Float[Tensor, "N R"]) -> Float[Tensor, "N K"]:
        """E z; of a few draws, the same ones for all data and always, where it has no closed form."""
        return self._moments(h)[0]

    def variance(self, h: Float[Tensor, "N R"]) -> Float[Tensor, "N K"]:
        """var z, in the same way."""
        return self._moments(h)[1]

    def _moments(self, h: Float[Tensor, "N R"]) -> tuple[Tensor, Tensor]:
        half = np.random.default_rng(0).standard_normal((DRAWS // 2, 1, self.noise(h)))
        half /= np.sqrt(np.square(half).mean(0))  # in pairs of this size: exact where g is linear in ε
        z = self.transform(h, torch.from_numpy(np.concatenate([half, -half])).to(h))
        return z.mean(0), z.var(0, correction=0)

    def codes(
        self, h: Float[Tensor, "N R"], generator: torch.Generator | None = None, samples: int = 1
    ) -> Float[Tensor, "S N K"]:
        """Draws without their density."""
        size, on = (samples, len(h), self.noise(h)), drawn_on(h, generator)
        return self.transform(h, torch.randn(size, generator=generator, dtype=h.dtype, device=on).to(h.device))


class GaussianCodes(CodePosterior):
    r"""N(μ, diag σ²), of μ and log σ² side by side. [kingma2014]

    >>> GaussianCodes().mean(torch.tensor([[3.0, 0.0]]))
    tensor([[3.]])
    """

    def latent(self, numbers: int) -> int:
        if numbers % 2:
            raise ValueError(
                f"the encoder of a VAE gives a mean and a log variance for each code, not {numbers} numbers."
            )
        return numbers // 2

    def noise(self, h: Float[Tensor, "N R"]) -> int:
        return h.shape[1] // 2

    def transform(self, h: Float[Tensor, "N R"], noise: Float[Tensor, "S #N E"]) -> Float[Tensor, "S N K"]:
        mean, log_variance = h.chunk(2, 1)
        return mean + (0.5 * log_variance).exp() * noise

    def distribution(self, h: Float[Tensor, "N R"]) -> Distribution:
        mean, log_variance = h.chunk(2, 1)
        return Independent(Normal(mean, (0.5 * log_variance).exp(), validate_args=False), 1, validate_args=False)

    def divergence(self, h: Float[Tensor, "N R"], prior: CodePrior) -> Float[Tensor, " N"] | None:
        """KL(q‖p) of a prior for which torch knows it."""
        try:
            return kl_divergence(self.distribution(h), prior.over(h[:, : h.shape[1] // 2]))
        except NotImplementedError:
            return None

    def mean(self, h: Float[Tensor, "N R"]) -> Float[Tensor, "N K"]:
        return h.chunk(2, 1)[0]

    def variance(self, h: Float[Tensor, "N R"]) -> Float[Tensor, "N K"]:
        return h.chunk(2, 1)[1].exp()


class SigmoidCodes(GaussianCodes):
    r"""z = s(u), u ~ N(μ, diag σ²): codes between 0 and 1, for the prior Beta(a, a)."""

    inside = ("iwae",)  # densities are those of u

    def distribution(self, h: Float[Tensor, "N R"]) -> Distribution:
        base = super().distribution(h)
        return TransformedDistribution(base, SigmoidTransform(cache_size=1), validate_args=False)

    def transform(self, h: Float[Tensor, "N R"], noise: Float[Tensor, "S #N E"]) -> Float[Tensor, "S N K"]:
        return super().transform(h, noise).sigmoid()

    def draw(
        self, h: Float[Tensor, "N R"], prior: CodePrior, samples: int = 1, path_only: bool = False
    ) -> tuple[Float[Tensor, "S N K"], Float[Tensor, "S N"]]:
        """Codes, and log q − log p of their logits, which is the same and finite where a code is rounded to 0 or 1."""
        u = super().distribution(h).rsample((samples,))
        q = super().distribution(h.detach() if path_only else h)
        return u.sigmoid(), q.log_prob(u) - prior.logit_log_prob(u)

    def mean(self, h: Float[Tensor, "N R"]) -> Float[Tensor, "N K"]:
        """E z, by quadrature."""
        return self._moments(h)[0]

    def variance(self, h: Float[Tensor, "N R"]) -> Float[Tensor, "N K"]:
        """var z, by quadrature."""
        return self._moments(h)[1]

    def _moments(self, h: Float[Tensor, "N R"]) -> tuple[Tensor, Tensor]:
        nodes, logs = (each.to(h).reshape(-1, 1, 1) for each in normal_nodes())
        z = self.transform(h, nodes)
        mean = (logs.exp() * z).sum(0)
        return mean, (logs.exp() * (z - mean).square()).sum(0)


def require_numbers(codes: CodePosterior, given: int, expected: int) -> None:
    """Raise ValueError unless the encoder gives as many numbers as these codes were built for."""
    if given != expected:
        raise ValueError(
            f"{type(codes).__name__} were built for {expected} numbers of the encoder, which gives {given}: pass "
            f"numbers={given}."
        )


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Parameters without gradients, for what is computed in between."""
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
    try:
        for parameter in learned:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_()
