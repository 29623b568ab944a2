"""A Gaussian around the mode: mode, curvature and prior."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import log, pi
from numbers import Real
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.columns import Hessian
from osculate.curvature.plan import Plan
from osculate.inputs import Inputs
from osculate.likelihoods import Likelihood
from osculate.parameters import Network
from osculate.posteriors._base import Sampled, as_posterior
from osculate.priors import Prior
from osculate.settings import differences, first_difference
from osculate.structures import Curvature, PosteriorPrecision


@dataclass(frozen=True, eq=False)
class Fit:
    """What one pass over the data at the mode leaves; it adds over data sets.

    Attributes:
        curvature: G, taken with ``likelihood``.
        likelihood: the likelihood at the time of the pass.
        statistics: sums from which the log likelihood follows.
        num_data: N.
        plan: the blocks of the network.
        network: the network at the mode.
        kind: the kind of curvature, by name.
    """

    curvature: Curvature
    likelihood: Likelihood
    statistics: Mapping[str, Tensor]
    num_data: int
    plan: Plan
    network: Network
    kind: str = "ggn"

    def __add__(self, other: "Fit") -> "Fit":
        r"""The pass over both data sets: G_1 + G_2, and the sums of the statistics.

        Both are sums over data of the same terms: taken at one mode, with one likelihood, one kind of curvature, one
        structure with the same settings and the same blocks. It is then what one pass over all data would have left.

        Args:
            other: the pass over other data; none of them may be in both.

        Raises:
            ValueError: one of these differs (the message names it), or the full Hessian in a structure that sets its
                negative directions to zero: that is done for each sum over data by itself.
            TypeError: a structure that reads the data more than once.

        Cost: one comparison of the parameters, and the sum of the states.
        """
        if not isinstance(other, Fit):
            return NotImplemented
        self._require_same_terms(other)
        statistics = {name: value + other.statistics[name] for name, value in self.statistics.items()}
        return replace(
            self,
            curvature=self.curvature + other.curvature,
            statistics=statistics,
            num_data=self.num_data + other.num_data,
        )

    def _require_same_terms(self, other: "Fit") -> None:
        mine, theirs = self.plan.blocks, other.plan.blocks
        kinds = f"{self.kind!r} against {other.kind!r}" if self.kind != other.kind else ""
        blocks = f"{len(mine)} against {len(theirs)} blocks" if len(mine) != len(theirs) else ""
        for what, difference in (
            ("likelihood", differences(self.likelihood, other.likelihood)),
            ("kind of curvature", kinds),
            ("structure", differences(self.curvature.structure, other.curvature.structure)),
            ("mode", _other_mode(self.network, other.network)),
            ("blocks of parameters", blocks or next(filter(None, map(differences, mine, theirs)), "")),
        ):
            if difference:
                raise ValueError(
                    f"two fits add where both are sums of the same terms, and these differ in their {what}: "
                    f"{difference}. Fit both data sets with one network and the same settings, or all data at once."
                )
        if self.kind == Hessian.name and self.curvature.structure.entrywise:
            raise ValueError(
                f"fits of the Hessian with structure={self.curvature.structure.name!r} do not add: the negative "
                "directions of each were set to zero, and those of the sum are others. Fit all data at once, or use "
                "curvature='ggn' or structure='matrix_free'."
            )


def _other_mode(one: Network, other: Network) -> str:
    """The first parameter or buffer in which two networks differ."""
    if one is other:
        return ""
    name = first_difference(one.module.state_dict(), other.module.state_dict())
    return name and f"{name!r} has other values"


@dataclass(frozen=True, eq=False)
class Gaussian(Sampled):
    r"""q(θ) = N(θ*, Λ⁻¹) with Λ = G/T + diag(δ).

    G is the curvature of the negative log likelihood at the mode θ*, δ the prior precision, T a temperature of the
    likelihood (1 is Bayes; below 1 sharpens the posterior). A frozen value: :meth:`replace` gives another one that
    shares the costly parts.

    Attributes:
        network: the network at the mode.
        fit: curvature and likelihood statistics.
        likelihood: p(y|f), possibly with another noise scale than at the time of the fit.
        prior: p(θ|δ).
        temperature: T.
        first_data: some of the data, on which a sampled predictive is compared with the mode; files leave them out.
        data: what it was fitted to, as it was given and not copied, for the mode of the linear model; None where that
            could be read once only, and in a posterior from a file.
    """

    network: Network
    fit: Fit
    likelihood: Likelihood
    prior: Prior
    temperature: float | Tensor = 1.0
    first_data: tuple[Inputs, Tensor] | None = None
    data: Any = None
    ways: ClassVar[tuple[str, ...]] = ("linearised", "sampled", "mode")

    def __post_init__(self) -> None:
        if not isinstance(self.temperature, Real | Tensor) or not bool(torch.as_tensor(self.temperature) > 0):
            raise ValueError(f"the temperature must be positive, got {self.temperature!r}.")
        prior = self.prior.bind(self.network.space)
        if prior.precision.device != self.network.device:
            prior = prior.with_precision(prior.precision.to(self.network.device))
        object.__setattr__(self, "prior", prior)
        if self.likelihood is not self.fit.likelihood:
            with torch.no_grad():
                self.likelihood.curvature_scale(self.fit.likelihood)  # which refuses what needs a new fit

    @property
    def structure(self) -> Curvature:
        """G, in its structure."""
        return self.fit.curvature

    @property
    def num_data(self) -> int:
        """N, the number of data behind the curvature."""
        return self.fit.num_data

    @cached_property
    def mean(self) -> Float[Tensor, " P"]:
        """θ*, flat, in the order of ``named_parameters()``."""
        return self.network.mean

    @cached_property
    def precision(self) -> PosteriorPrecision:
        """Λ, factorised."""
        scale = self.likelihood.curvature_scale(self.fit.likelihood)
        return self.structure.precision(scale / self.temperature, self.prior)

    def replace(self, **changes: Any) -> "Gaussian":
        """Another posterior with a different prior, likelihood (noise scale) or temperature.

        Raises:
            TypeError: a field that a posterior does not have.
            ValueError: a likelihood that needs a new fit; only the noise scale of ``Gaussian`` does not.

        >>> import osculate as osc
        >>> data = torch.randn(20, 2), torch.randn(20, 1)
        >>> q = osc.laplace(torch.nn.Linear(2, 1), osc.likelihoods.Gaussian(), data, prior=1.0)
        >>> bool(q.replace(prior=osc.priors.Isotropic(100.0)).variance().sum() < q.variance().sum())
        True
        """
        return replace(self, **changes)

    def sample(self, n: int = 1, generator: torch.Generator | None = None) -> Float[Tensor, "n P"]:
        """Draw ``n`` parameter vectors."""
        return self.mean + self.precision.sample(n, generator, self.mean)

    def draws(self, samples: int, generator: torch.Generator | None = None) -> Iterator[Callable[[Inputs], Tensor]]:
        """The network itself, not linearised, at sampled weights."""
        for _ in range(samples):
            yield partial(self.network, theta=self.network.space.unflatten(self.sample(1, generator)[0]))

    def log_prob(self, theta: Float[Tensor, "*S P"]) -> Float[Tensor, "*S"]:
        """log q(θ) of flat parameter vectors."""
        offset = theta - self.mean
        square = (offset * self.precision.multiply(offset)).sum(-1)
        size = int(self.structure.covered.sum())
        return 0.5 * (self.log_det().to(theta.dtype) - square - size * log(2 * pi))

    def log_det(self) -> Float[Tensor, ""]:
        """log |Λ| of the posterior precision, over the parameters that the posterior is over."""
        logs = self.prior.vector(self.network.space).double().log()
        return self.precision.log_det_ratio() + logs[self.structure.covered.to(logs.device)].sum()

    def variance(self) -> Float[Tensor, " P"]:
        """The posterior variance of each parameter, the diagonal of Λ⁻¹."""
        return self.precision.variance().to(self.mean)

    def to(self, device: Any = None, dtype: Any = None) -> "Gaussian":
        """The same posterior on another device or in another floating type.

        In half precision the network alone is: curvature and prior are then kept in single precision, as those of a
        network that was in half precision when it was fitted.
        """
        network, curvature = self.network.to(device, dtype), self.structure
        state = None if dtype is None else network.state_dtype

        def there(tensor: Tensor) -> Tensor:
            return tensor.to(device=device, dtype=state if tensor.is_floating_point() else None)

        moved = curvature.with_tensors({name: there(tensor) for name, tensor in curvature.tensors().items()})
        blocks = tuple(replace(b, positions=b.positions.to(device)) for b in moved.blocks)  # type: ignore[type-var]
        statistics = {name: value.to(device) for name, value in self.fit.statistics.items()}
        fit = replace(self.fit, curvature=replace(moved, blocks=blocks), statistics=statistics, network=network)
        return self.replace(network=network, fit=fit, prior=self.prior.with_precision(there(self.prior.precision)))

    def __repr__(self) -> str:
        return (
            f"Gaussian(structure={self.structure.structure.name!r}, P={self.mean.numel():,}, N={self.num_data:,}, "
            f"likelihood={type(self.likelihood).__name__}, prior={type(self.prior).__name__})"
        )


def as_gaussian(q: object, what: str) -> Gaussian:
    """A Gaussian posterior, or that of a training result.

    Args:
        q: a posterior or training result.
        what: what it is needed for, for the error.

    Raises:
        TypeError: it is something else.
    """
    posterior = as_posterior(q)
    if not isinstance(posterior, Gaussian):
        raise TypeError(
            f"{what} needs a Gaussian posterior, got {type(posterior).__name__}. {posterior.gaussian_instead}"
        )
    return posterior
