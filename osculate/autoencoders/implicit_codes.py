"""q(z|x) that is sampled by a network of noise, and has no density in closed form."""

import math
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, Normal
from torch.nn.functional import softplus

from osculate.autoencoders.code_posteriors import CodePosterior, frozen, require_numbers
from osculate.autoencoders.code_priors import CodePrior
from osculate.checks import require_whole
from osculate.networks.activations import initialise


class ImplicitCodes(CodePosterior):
    """z = g(h, ε), whose density is an integral.

    Args:
        latent: K.
        numbers: of the encoder for each datum.
        noise: length of ε.

    Raises:
        ValueError: a size that is not positive.
    """

    def __init__(self, latent: int, numbers: int, noise: int) -> None:
        super().__init__()
        for name, value in {"latent": latent, "numbers": numbers, "noise": noise}.items():
            require_whole(name, value)
        self._latent, self._numbers, self._noise = latent, numbers, noise

    def latent(self, numbers: int) -> int:
        require_numbers(self, numbers, self._numbers)
        return self._latent

    def noise(self, h: Float[Tensor, "N R"]) -> int:
        return self._noise

    def distribution(self, h: Float[Tensor, "N R"]) -> Distribution:
        """Not known.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            f"{type(self).__name__} have no density in closed form: draw codes with codes(h), and bound log p(x) with "
            "osc.autoencoders.bound."
        )


class SemiImplicitCodes(ImplicitCodes):
    r"""z ~ N(μ(h, ε), diag σ²(h, ε)), ε ~ N(0, I): a mixture over all that a network makes of noise. [yin2018]

    Its density is an integral. In its place stands the mean density of the component that z was drawn from and M
    others,

    .. math:: \operatorname{E} \log \frac{p(x, z)}{\frac{1}{M+1} \sum_{m=0}^M q(z \mid h, \epsilon_m)}
              \le \operatorname{E}_{q(z|h)} \log \frac{p(x, z)}{q(z \mid h)},

    which is a bound for every M, and tight for many.

    Args:
        latent: K.
        numbers: of the encoder for each datum.
        hidden: units of the two hidden layers of the network.
        noise: length of ε.
        mixtures: M.

    Raises:
        ValueError: a size that is not positive.

    Cost: M + 1 passes of the small network for each datum.
    """

    inside = ("iwae",)
    independent = False

    def __init__(self, latent: int, numbers: int, hidden: int = 64, noise: int = 8, mixtures: int = 50) -> None:
        super().__init__(latent, numbers, noise)
        require_whole("mixtures", mixtures)
        self.mixtures = mixtures
        self.net = _network(numbers + noise, hidden, 2 * latent)

    def noise(self, h: Float[Tensor, "N R"]) -> int:
        """ε, and the noise of the component that it stands for."""
        return self._noise + self._latent

    def transform(self, h: Float[Tensor, "N R"], noise: Float[Tensor, "S #N E"]) -> Float[Tensor, "S N K"]:
        which, within = noise.split([self._noise, self._latent], -1)
        mean, log_variance = self.net(_joined(h, which)).chunk(2, -1)
        return mean + (0.5 * log_variance).exp() * within

    def _components(self, h: Float[Tensor, "N R"], count: int) -> Independent:
        """So many of them for each datum, (count, N)."""
        noise = torch.randn(count, len(h), self._noise, dtype=h.dtype, device=h.device)
        mean, log_variance = self.net(_joined(h, noise)).chunk(2, -1)
        return Independent(Normal(mean, (0.5 * log_variance).exp(), validate_args=False), 1, validate_args=False)

    def draw(
        self, h: Float[Tensor, "N R"], prior: CodePrior, samples: int = 1, path_only: bool = False
    ) -> tuple[Float[Tensor, "S N K"], Float[Tensor, "S N"]]:
        """Codes, with the mean density over components in place of q; ``path_only`` does nothing."""
        own, others = self._components(h, samples), self._components(h, self.mixtures)
        z = own.rsample()
        among = torch.cat([own.log_prob(z).unsqueeze(0), others.log_prob(z.unsqueeze(1)).movedim(1, 0)])
        return z, among.logsumexp(0) - math.log(self.mixtures + 1) - prior.over(z).log_prob(z)


class AdversarialCodes(ImplicitCodes):
    r"""z = g(h, ε) with any network g: a discriminator T(h, z) stands for log q(z|h) − log p(z). [mescheder2017]

    .. math:: \max_T \; \operatorname{E}_{q(z|h)} \log s(T) + \operatorname{E}_{p(z)} \log s(-T)

    T is trained beside the bound, which is one only as far as T has converged: what training reports is an estimate,
    and may lie above log p(x).

    Args:
        latent: K.
        numbers: of the encoder for each datum.
        hidden: units of the two hidden layers of both networks.
        noise: length of ε.

    Raises:
        ValueError: a size that is not positive.
    """

    has_density = False
    inside = ("dreg",)

    def __init__(self, latent: int, numbers: int, hidden: int = 64, noise: int = 8) -> None:
        super().__init__(latent, numbers, noise)
        self.net = _network(numbers + noise, hidden, latent)
        self.discriminator = _network(numbers + latent, hidden, 1)

    def transform(self, h: Float[Tensor, "N R"], noise: Float[Tensor, "S #N E"]) -> Float[Tensor, "S N K"]:
        return self.net(_joined(h, noise))

    def draw(
        self, h: Float[Tensor, "N R"], prior: CodePrior, samples: int = 1, path_only: bool = False
    ) -> tuple[Float[Tensor, "S N K"], Float[Tensor, "S N"]]:
        """Codes, and the discriminator's estimate of log q − log p; ``path_only`` does nothing."""
        z = self.codes(h, samples=samples)
        with frozen(self.discriminator):
            return z, self._ratio(h.detach(), z)

    def _ratio(self, h: Float[Tensor, "N R"], z: Float[Tensor, "S N K"]) -> Float[Tensor, "S N"]:
        return self.discriminator(_joined(h, z)).squeeze(-1)

    def extra_loss(self, h: Float[Tensor, "N R"], prior: CodePrior) -> Float[Tensor, ""]:
        """What the discriminator descends, at draws of its own."""
        h = h.detach()
        with torch.no_grad():
            z = self.codes(h)
            other = prior.over(z).sample()
        return (softplus(-self._ratio(h, z)) + softplus(self._ratio(h, other))).mean()


def _network(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    for name, value in {"inputs": inputs, "hidden": hidden, "outputs": outputs}.items():
        require_whole(name, value)
    layers: list[nn.Module] = []
    for before, after in pairwise((inputs, hidden, hidden)):
        layers += [nn.Linear(before, after), nn.ReLU()]
    layers.append(nn.Linear(hidden, outputs))
    initialise(layers, "orthogonal", "relu")  # noise that hardly counts at the start stays without effect
    return nn.Sequential(*layers)


def _joined(h: Float[Tensor, "N R"], other: Float[Tensor, "S #N Q"]) -> Float[Tensor, "S N RQ"]:
    """The numbers of the encoder beside others."""
    size = (len(other), len(h))
    return torch.cat([h.expand(*size, -1), other.expand(*size, -1)], -1)
