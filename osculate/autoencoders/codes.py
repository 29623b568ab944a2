"""Priors p(z) of codes, and their distributions q(z|h) given an encoder's outputs: Gaussian, implicit, and by flows."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import (
    Beta,
    Categorical,
    Distribution,
    Independent,
    MixtureSameFamily,
    Normal,
    SigmoidTransform,
    TransformedDistribution,
    kl_divergence,
)
from torch.nn.functional import logsigmoid, softplus

from osculate.checks import require_library, require_positive, require_whole
from osculate.likelihoods.quadrature import normal_nodes
from osculate.networks import MLP
from osculate.networks.activations import initialise
from osculate.randomness import drawn_on, fresh_seed, seeded
from osculate.registry import made

#: Bisection steps in the search for a quantile, to double precision.
HALVINGS = 60
#: Draws for moments without a closed form.
DRAWS = 64
#: Drawn codes, and log q(z|h) − log p(z) of each.
Drawn: TypeAlias = tuple[Float[Tensor, "S N K"], Float[Tensor, "S N"]]


class CodePrior(ABC):
    """p(z) = Π_k p(z_k), the same for every code dimension."""

    @property
    def nearly_binary(self) -> bool:
        """True if the density has its peaks at 0 and 1."""
        return False

    @abstractmethod
    def each(self, like: Float[Tensor, "..."]) -> Distribution:
        """p(z_k), of the shape, type and device of ``like``."""

    def over(self, like: Float[Tensor, "... K"]) -> Independent:
        """p(z) for codes of the shape of ``like``, with one code along the last axis.

        >>> StandardNormal().over(torch.zeros(5, 2)).log_prob(torch.zeros(5, 2)).shape
        torch.Size([5])
        """
        return Independent(self.each(like), 1)

    def logit_log_prob(self, u: Float[Tensor, "... K"]) -> Float[Tensor, "..."]:
        """The log density of the logits u of a code z = s(u) between 0 and 1."""
        z = u.sigmoid()
        return (self.each(z).log_prob(z) + logsigmoid(u) + logsigmoid(-u)).sum(-1)

    def sample(self, n: int, latent: int, generator: torch.Generator | None = None) -> Float[Tensor, "n K"]:
        """Codes, on the device of the generator."""
        on = torch.device("cpu") if generator is None else generator.device
        with drawn_by(generator):
            return self.over(torch.zeros(n, latent, device=on)).sample()

    @abstractmethod
    def inverse_cdf(self, u: Float[Tensor, " U"]) -> Float[Tensor, " U"]:
        """F⁻¹(u) of one code dimension, in double precision."""

    @abstractmethod
    def cells(self, bits: int) -> tuple[Float[Tensor, " edges"], Float[Tensor, " cells"]]:
        """The quantisation of one code dimension: edges between 2^bits cells, and a value for each cell."""


def drawn_by(generator: torch.Generator | None) -> AbstractContextManager[None]:
    """Seed torch from a generator within the context, for functions that take none; None leaves torch's state."""
    return nullcontext() if generator is None else seeded(fresh_seed(generator))


def quantiles(places: int) -> Float[Tensor, " places"]:
    """The centres of equal cells of (0, 1), which exclude the ends, where an inverse cdf is infinite.

    >>> quantiles(4)
    tensor([0.1250, 0.3750, 0.6250, 0.8750], dtype=torch.float64)
    """
    return (torch.arange(places, dtype=torch.double) + 0.5) / places


@dataclass(frozen=True)
class StandardNormal(CodePrior):
    """p(z_k) = N(0, 1)."""

    def each(self, like: Float[Tensor, "..."]) -> Normal:
        return Normal(torch.zeros_like(like), torch.ones_like(like), validate_args=False)

    def inverse_cdf(self, u: Float[Tensor, " U"]) -> Float[Tensor, " U"]:
        return torch.special.ndtri(u.double())

    def cells(self, bits: int) -> tuple[Float[Tensor, " edges"], Float[Tensor, " cells"]]:
        """Cells of equal probability; the value of a cell is its mean."""
        normal = Normal(torch.zeros((), dtype=torch.double), 1.0)
        edges = normal.icdf(torch.arange(1, 2**bits, dtype=torch.double) / 2**bits)
        density = torch.nn.functional.pad(normal.log_prob(edges).exp(), (1, 1))
        return edges, 2**bits * (density[:-1] - density[1:])


@dataclass(frozen=True)
class SparseBeta(CodePrior):
    r"""p(z_k) = Beta(a, a), with a < 1 largest at 0 and 1: nearly binary codes.

    Args:
        shape: Shape a; smaller values are closer to binary.

    Raises:
        ValueError: a shape that is not positive.
    """

    shape: float = 0.2

    def __post_init__(self) -> None:
        require_positive("the shape", self.shape)

    @property
    def nearly_binary(self) -> bool:
        return self.shape < 1

    def each(self, like: Float[Tensor, "..."]) -> Beta:
        shape = torch.full_like(like, self.shape)
        return Beta(shape, shape)

    def inverse_cdf(self, u: Float[Tensor, " U"]) -> Float[Tensor, " U"]:
        from scipy.special import betaincinv

        return torch.from_numpy(betaincinv(self.shape, self.shape, u.double().numpy()))

    def logit_log_prob(self, u: Float[Tensor, "... K"]) -> Float[Tensor, "..."]:
        """Σ_k a log s(u_k) + a log s(−u_k) − log B(a, a), finite if z rounds to 0 or 1."""
        a = torch.tensor(self.shape, dtype=torch.double)
        each = self.shape * (logsigmoid(u) + logsigmoid(-u)) + float((2 * a).lgamma() - 2 * a.lgamma())
        return each.sum(-1)

    def cells(self, bits: int) -> tuple[Float[Tensor, " edges"], Float[Tensor, " cells"]]:
        """Equal intervals, whose outermost values are 0 and 1."""
        return torch.arange(1, 2**bits, dtype=torch.double) / 2**bits, torch.linspace(0, 1, 2**bits, dtype=torch.double)


@dataclass(frozen=True)
class TwoNormals(CodePrior):
    r"""p(z_k) = ½ N(0, s²) + ½ N(1, s²): nearly binary codes on the whole line.

    Args:
        scale: s.

    Raises:
        ValueError: a scale that is not positive.
    """

    scale: float = 0.1

    def __post_init__(self) -> None:
        require_positive("the scale", self.scale)

    @property
    def nearly_binary(self) -> bool:
        return self.scale < 0.5  # wider components merge into one peak

    def each(self, like: Float[Tensor, "..."]) -> MixtureSameFamily:
        places = torch.stack([torch.zeros_like(like), torch.ones_like(like)], -1)
        halves = Categorical(logits=torch.zeros_like(places), validate_args=False)
        return MixtureSameFamily(halves, Normal(places, self.scale, validate_args=False), validate_args=False)

    def inverse_cdf(self, u: Float[Tensor, " U"]) -> Float[Tensor, " U"]:
        """The quantile by bisection below ½ and by symmetry above, as F is ½ to the last digit between narrow peaks."""
        u = u.double()
        lower = torch.minimum(u, 1 - u)
        low, high = torch.full_like(u, -10 * self.scale), torch.full_like(u, 0.5)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            below = self.each(middle).cdf(middle) < lower
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        found = torch.where(u == 0.5, 0.5, (low + high) / 2)
        return torch.where(u > 0.5, 1 - found, found)

    def cells(self, bits: int) -> tuple[Float[Tensor, " edges"], Float[Tensor, " cells"]]:
        """Cells of equal probability; the value of a cell is its mean, which with one bit is nearly 0 or 1."""
        centres = torch.tensor([[0.0], [1.0]], dtype=torch.double)
        normal = Normal(centres, torch.full_like(centres, self.scale), validate_args=False)
        edges = self.inverse_cdf(torch.arange(1, 2**bits, dtype=torch.double) / 2**bits)
        every = torch.cat([edges.new_tensor([-torch.inf]), edges, edges.new_tensor([torch.inf])])
        moments = normal.mean * normal.cdf(every) - normal.variance * normal.log_prob(every).exp()
        return edges, 2**bits * moments.mean(0).diff()


#: Priors of codes by name.
CODE_PRIORS: Mapping[str, Callable[[], CodePrior]] = {
    "normal": StandardNormal,
    "beta": SparseBeta,
    "two_normals": TwoNormals,
}


def as_code_prior(prior: str | CodePrior) -> CodePrior:
    """Return a prior, given as itself or by name.

    Raises:
        ValueError: an unknown name.
        TypeError: neither a prior nor a name.
    """
    return made("prior of codes", prior, CODE_PRIORS, CodePrior)


class CodePosterior(nn.Module, ABC):
    r"""q(z|h), with z = g(h, ε) differentiable in h. [kingma2014, section 2.4]

    A subclass writes :meth:`latent` and :meth:`transform`, and :meth:`distribution`, or :meth:`draw` where the
    density is not known.
    """

    #: True if log q of a draw is known, or bounded such that the ELBO remains a lower bound.
    has_density: ClassVar[bool] = True
    #: Estimators with several draws inside the logarithm whose gradient is unbiased: "iwae" needs the gradient of log q
    #: with respect to its parameters, "dreg" that through z alone, and a density computed from z.
    inside: ClassVar[tuple[str, ...]] = ("iwae", "dreg")
    #: True if the codes and densities drawn for a datum by one call are independent.
    independent: ClassVar[bool] = True

    @abstractmethod
    def latent(self, numbers: int) -> int:
        """K for an encoder with this number of outputs.

        Raises:
            ValueError: the number of outputs does not fit.
        """

    def noise(self, h: Float[Tensor, "N R"]) -> int:
        """The length of ε ~ N(0, I), by default that of the code."""
        return self.latent(h.shape[1])

    @abstractmethod
    def transform(self, h: Float[Tensor, "N R"], noise: Float[Tensor, "S #N E"]) -> Float[Tensor, "S N K"]:
        """g(h, ε)."""

    @abstractmethod
    def distribution(self, h: Float[Tensor, "N R"]) -> Distribution:
        """q(z|h), one code (K,) for each datum."""

    def draw(self, h: Float[Tensor, "N R"], prior: CodePrior, samples: int = 1, path_only: bool = False) -> Drawn:
        """Codes, and log q(z|h) − log p(z) of each.

        Args:
            h: Outputs of the encoder.
            prior: p(z).
            samples: S.
            path_only: Differentiate log q through z alone, without its parameters; the omitted part has expectation
                zero. [roeder2017]
        """
        z = self.codes(h, samples=samples)
        if not path_only:
            return z, self.distribution(h).log_prob(z) - prior.over(z).log_prob(z)
        with frozen(self):  # a flow reads its parameters in log_prob, not when q is made
            return z, self.distribution(h.detach()).log_prob(z) - prior.over(z).log_prob(z)

    def divergence(self, h: Float[Tensor, "N R"], prior: CodePrior) -> Float[Tensor, " N"] | None:
        """KL(q‖p) in nats, or None without a closed form."""
        return None

    def extra_loss(self, h: Float[Tensor, "N R"], prior: CodePrior) -> Float[Tensor, ""] | float:
        """An additional loss for the parameters of this posterior, if its density is unknown; zero by default."""
        return 0.0

    def mean(self, h: Float[Tensor, "N R"]) -> Float[Tensor, "N K"]:
        """E z; without a closed form, the mean of a few fixed draws."""
        return self._moments(h)[0]

    def variance(self, h: Float[Tensor, "N R"]) -> Float[Tensor, "N K"]:
        """var z; without a closed form, the variance of a few fixed draws."""
        return self._moments(h)[1]

    def _moments(self, h: Float[Tensor, "N R"]) -> tuple[Tensor, Tensor]:
        """E z and var z."""
        half = np.random.default_rng(0).standard_normal((DRAWS // 2, 1, self.noise(h)))
        half /= np.sqrt(np.square(half).mean(0))  # antithetic pairs: exact if g is linear in ε
        z = self.transform(h, torch.from_numpy(np.concatenate([half, -half])).to(h))
        return z.mean(0), z.var(0, correction=0)

    def codes(
        self, h: Float[Tensor, "N R"], generator: torch.Generator | None = None, samples: int = 1
    ) -> Float[Tensor, "S N K"]:
        """Draws of z, without their density."""
        size, on = (samples, len(h), self.noise(h)), drawn_on(h, generator)
        return self.transform(h, torch.randn(size, generator=generator, dtype=h.dtype, device=on).to(h.device))


class GaussianCodes(CodePosterior):
    r"""N(μ, diag σ²), with μ and log σ² side by side. [kingma2014]

    >>> GaussianCodes().mean(torch.tensor([[3.0, 0.0]]))
    tensor([[3.]])
    """

    def latent(self, numbers: int) -> int:
        if numbers % 2:
            raise ValueError(
                f"the encoder of a VAE has {numbers} outputs, but needs an even number: a mean and a log variance for "
                "each code dimension."
            )
        return numbers // 2

    def transform(self, h: Float[Tensor, "N R"], noise: Float[Tensor, "S #N E"]) -> Float[Tensor, "S N K"]:
        mean, log_variance = h.chunk(2, 1)
        return mean + (0.5 * log_variance).exp() * noise

    def distribution(self, h: Float[Tensor, "N R"]) -> Distribution:
        return normal(h)

    def divergence(self, h: Float[Tensor, "N R"], prior: CodePrior) -> Float[Tensor, " N"] | None:
        """KL(q‖p) if torch has a closed form, else None."""
        try:
            return kl_divergence(self.distribution(h), prior.over(h[:, : h.shape[1] // 2]))
        except NotImplementedError:
            return None

    def _moments(self, h: Float[Tensor, "N R"]) -> tuple[Tensor, Tensor]:
        mean, log_variance = h.chunk(2, 1)
        return mean, log_variance.exp()


class SigmoidCodes(GaussianCodes):
    r"""z = s(u), u ~ N(μ, diag σ²): codes between 0 and 1, for the prior Beta(a, a)."""

    inside = ("iwae",)  # densities are those of u

    def distribution(self, h: Float[Tensor, "N R"]) -> Distribution:
        base = super().distribution(h)
        return TransformedDistribution(base, SigmoidTransform(cache_size=1), validate_args=False)

    def transform(self, h: Float[Tensor, "N R"], noise: Float[Tensor, "S #N E"]) -> Float[Tensor, "S N K"]:
        return super().transform(h, noise).sigmoid()

    def draw(self, h: Float[Tensor, "N R"], prior: CodePrior, samples: int = 1, path_only: bool = False) -> Drawn:
        """Codes, and log q − log p by their logits, which is equal, and finite for codes that round to 0 or 1."""
        u = super().distribution(h).rsample((samples,))
        q = super().distribution(h.detach() if path_only else h)
        return u.sigmoid(), q.log_prob(u) - prior.logit_log_prob(u)

    def _moments(self, h: Float[Tensor, "N R"]) -> tuple[Tensor, Tensor]:
        """E z and var z, by quadrature."""
        nodes, logs = (each.to(h).reshape(-1, 1, 1) for each in normal_nodes())
        z = self.transform(h, nodes)
        mean = (logs.exp() * z).sum(0)
        return mean, (logs.exp() * (z - mean).square()).sum(0)


def normal(parameters: Float[Tensor, "*N twoK"]) -> Independent:
    """N(μ, diag σ²) of codes, from μ and log σ² side by side."""
    mean, log_variance = parameters.chunk(2, -1)
    return Independent(Normal(mean, (0.5 * log_variance).exp(), validate_args=False), 1, validate_args=False)


class SizedCodes(CodePosterior):
    """q(z|h) by networks that are built for one size of h.

    Args:
        latent: K.
        numbers: Outputs of the encoder for each datum.
        **sizes: Other sizes.

    Raises:
        ValueError: a size that is not positive.
    """

    def __init__(self, latent: int, numbers: int, **sizes: int) -> None:
        super().__init__()
        for name, value in {"latent": latent, "numbers": numbers, **sizes}.items():
            require_whole(name, value)
        self._latent, self._numbers = latent, numbers

    def latent(self, numbers: int) -> int:
        if numbers != self._numbers:
            raise ValueError(
                f"{type(self).__name__} were built for {self._numbers} encoder outputs, and the encoder has {numbers}: "
                f"pass numbers={numbers}."
            )
        return self._latent


class ImplicitCodes(SizedCodes):
    """z = g(h, ε), without a density in closed form.

    Args:
        latent: K.
        numbers: Outputs of the encoder for each datum.
        noise: Length of ε.
        **sizes: Other sizes.

    Raises:
        ValueError: a size that is not positive.
    """

    def __init__(self, latent: int, numbers: int, noise: int, **sizes: int) -> None:
        super().__init__(latent, numbers, noise=noise, **sizes)
        self._noise = noise

    def noise(self, h: Float[Tensor, "N R"]) -> int:
        return self._noise

    def distribution(self, h: Float[Tensor, "N R"]) -> Distribution:
        """Raise ValueError: the density has no closed form."""
        raise ValueError(
            f"{type(self).__name__} have no density in closed form: draw codes with codes(h), and bound log p(x) with "
            "osc.autoencoders.bound."
        )


class SemiImplicitCodes(ImplicitCodes):
    r"""z ~ N(μ(h, ε), diag σ²(h, ε)), ε ~ N(0, I): a continuous mixture of Gaussians by a network. [yin2018]

    Its density is an integral. It is replaced by the mean density of the component that z was drawn from and M
    others,

    .. math:: \operatorname{E} \log \frac{p(x, z)}{\frac{1}{M+1} \sum_{m=0}^M q(z \mid h, \epsilon_m)}
              \le \operatorname{E}_{q(z|h)} \log \frac{p(x, z)}{q(z \mid h)},

    which is a bound for every M, and tight for many.

    Args:
        latent: K.
        numbers: Outputs of the encoder for each datum.
        hidden: Units of the two hidden layers of the network.
        noise: Length of ε.
        mixtures: M.

    Raises:
        ValueError: a size that is not positive.

    Cost: M + 1 passes of the small network for each datum.
    """

    inside = ("iwae",)
    independent = False

    def __init__(self, latent: int, numbers: int, hidden: int = 64, noise: int = 8, mixtures: int = 50) -> None:
        super().__init__(latent, numbers, noise, hidden=hidden, mixtures=mixtures)
        self.mixtures = mixtures
        self.net = _network(numbers + noise, hidden, 2 * latent)

    def noise(self, h: Float[Tensor, "N R"]) -> int:
        """The length of ε, which selects a component, and of the noise within the component."""
        return self._noise + self._latent

    def transform(self, h: Float[Tensor, "N R"], noise: Float[Tensor, "S #N E"]) -> Float[Tensor, "S N K"]:
        which, within = noise.split([self._noise, self._latent], -1)
        mean, log_variance = self.net(_joined(h, which)).chunk(2, -1)
        return mean + (0.5 * log_variance).exp() * within

    def _components(self, h: Float[Tensor, "N R"], count: int) -> Independent:
        """Draw components for each datum, (count, N)."""
        noise = torch.randn(count, len(h), self._noise, dtype=h.dtype, device=h.device)
        return normal(self.net(_joined(h, noise)))

    def draw(self, h: Float[Tensor, "N R"], prior: CodePrior, samples: int = 1, path_only: bool = False) -> Drawn:
        """Codes, with the mean density over components in place of q; ``path_only`` does nothing."""
        own, others = self._components(h, samples), self._components(h, self.mixtures)
        z = own.rsample()
        among = torch.cat([own.log_prob(z).unsqueeze(0), others.log_prob(z.unsqueeze(1)).movedim(1, 0)])
        return z, among.logsumexp(0) - math.log(self.mixtures + 1) - prior.over(z).log_prob(z)


class AdversarialCodes(ImplicitCodes):
    r"""z = g(h, ε) with any network g; a discriminator T(h, z) estimates log q(z|h) − log p(z). [mescheder2017]

    .. math:: \max_T \; \operatorname{E}_{q(z|h)} \log s(T) + \operatorname{E}_{p(z)} \log s(-T)

    T is trained together with the bound, which holds only if T has converged: training reports an estimate that may lie
    above log p(x).

    Args:
        latent: K.
        numbers: Outputs of the encoder for each datum.
        hidden: Units of the two hidden layers of both networks.
        noise: Length of ε.

    Raises:
        ValueError: a size that is not positive.
    """

    has_density = False
    inside = ("dreg",)

    def __init__(self, latent: int, numbers: int, hidden: int = 64, noise: int = 8) -> None:
        super().__init__(latent, numbers, noise, hidden=hidden)
        self.net = _network(numbers + noise, hidden, latent)
        self.discriminator = _network(numbers + latent, hidden, 1)

    def transform(self, h: Float[Tensor, "N R"], noise: Float[Tensor, "S #N E"]) -> Float[Tensor, "S N K"]:
        return self.net(_joined(h, noise))

    def draw(self, h: Float[Tensor, "N R"], prior: CodePrior, samples: int = 1, path_only: bool = False) -> Drawn:
        """Codes, and the discriminator's estimate of log q − log p; ``path_only`` does nothing."""
        z = self.codes(h, samples=samples)
        with frozen(self.discriminator):
            return z, self._ratio(h.detach(), z)

    def _ratio(self, h: Float[Tensor, "N R"], z: Float[Tensor, "S N K"]) -> Float[Tensor, "S N"]:
        return self.discriminator(_joined(h, z)).squeeze(-1)

    def extra_loss(self, h: Float[Tensor, "N R"], prior: CodePrior) -> Float[Tensor, ""]:
        """The loss of the discriminator, at separate draws."""
        h = h.detach()
        with torch.no_grad():
            z = self.codes(h)
            other = prior.over(z).sample()
        return (softplus(-self._ratio(h, z)) + softplus(self._ratio(h, other))).mean()


def _network(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    network = MLP(inputs, (hidden, hidden), outputs, "relu")
    initialise(network, "orthogonal", "relu")  # the network would learn to ignore noise with small initial weights
    return network


def _joined(h: Float[Tensor, "N R"], other: Float[Tensor, "S #N Q"]) -> Float[Tensor, "S N RQ"]:
    """Concatenate encoder outputs with other vectors, for each of S draws."""
    size = (len(other), len(h))
    return torch.cat([h.expand(*size, -1), other.expand(*size, -1)], -1)


class FlowCodes(SizedCodes):
    r"""z = g_h(ε) with g_h invertible: log q(z|h) = log N(ε; 0, I) − log |det ∂g_h/∂ε|. [rezende2015]

    Affine couplings from the package zuko (extra ``flows``): density and draws in one pass.

    Args:
        latent: K, at least 2.
        numbers: Outputs of the encoder for each datum.
        transforms: Couplings.
        hidden: Units of the two hidden layers of each.

    Raises:
        ImportError: zuko is not installed.
        ValueError: a size that is not positive, or a one-dimensional code, which has nothing to couple.
    """

    def __init__(self, latent: int, numbers: int, transforms: int = 4, hidden: int = 64) -> None:
        if latent < 2:
            raise ValueError(f"a flow couples the dimensions of a code, and latent is {latent}: take at least 2.")
        super().__init__(latent, numbers, transforms=transforms, hidden=hidden)
        self.flow = _zuko().flows.MAF(
            latent, numbers, transforms=transforms, hidden_features=(hidden, hidden), passes=2
        )

    def transform(self, h: Float[Tensor, "N R"], noise: Float[Tensor, "S #N E"]) -> Float[Tensor, "S N K"]:
        return self.flow(h).transform.inv(noise.expand(-1, len(h), -1))

    def distribution(self, h: Float[Tensor, "N R"]) -> Any:
        return self.flow(h)

    def __repr__(self) -> str:
        """Its sizes; printing the flow of zuko would draw random numbers."""
        sizes = [f"{tuple(p.shape)}" for p in self.parameters() if p.ndim == 2]
        return f"FlowCodes(latent={self._latent}, weights={', '.join(sizes)})"

    def draw(self, h: Float[Tensor, "N R"], prior: CodePrior, samples: int = 1, path_only: bool = False) -> Drawn:
        """Codes, and log q − log p, in one pass; in two with ``path_only``."""
        if path_only:
            return super().draw(h, prior, samples, path_only)
        z, density = self.distribution(h).rsample_and_log_prob((samples,))
        return z, density - prior.over(z).log_prob(z)


def _zuko() -> Any:
    """Import zuko, and restore the argument checks of torch's distributions, which its import disables."""
    checks = Distribution._validate_args
    try:
        require_library("zuko", "flows of codes")
        import zuko  # type: ignore[import-untyped]
    finally:
        Distribution.set_default_validate_args(checks)
    return zuko


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Disable the gradients of a module's parameters within the context."""
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
    try:
        for parameter in learned:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_()
