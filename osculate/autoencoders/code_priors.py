"""p(z): prior distributions of codes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Beta, Categorical, Distribution, Independent, MixtureSameFamily, Normal
from torch.nn.functional import logsigmoid

from osculate.checks import require_positive
from osculate.randomness import fresh_seed, seeded
from osculate.registry import made

#: Bisection steps in the search for a quantile, to double precision.
HALVINGS = 60


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
        shape: a; smaller values are closer to binary.

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
        every = torch.nn.functional.pad(edges, (1, 0), value=-torch.inf)
        every = torch.nn.functional.pad(every, (0, 1), value=torch.inf)
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
