"""A Gaussian around the mode: mode, curvature and prior."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import log, pi
from numbers import Real
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from osculate.curvature.columns import GGN, Hessian
from osculate.curvature.plan import make_plan
from osculate.distributed import ALONE, Group
from osculate.inputs import Inputs, moved
from osculate.likelihoods import Likelihood
from osculate.parameters import Network
from osculate.posteriors._base import Sampled, as_posterior
from osculate.posteriors.fit import Fit
from osculate.priors import Prior
from osculate.structures import Curvature, PosteriorPrecision


@dataclass(frozen=True, eq=False)
class Gaussian(Sampled):
    r"""q(θ) = N(θ*, Λ⁻¹) with Λ = G/T + diag(δ).

    G is the curvature of the negative log likelihood at the mode θ*, δ the prior precision, T a temperature of the
    likelihood (1 is Bayes; below 1 sharpens the posterior). A frozen value: :meth:`replace` gives another one that
    shares the costly parts.

    Attributes:
        fit: Curvature and likelihood statistics.
        likelihood: p(y|f), possibly with another noise scale than at the time of the fit.
        prior: p(θ|δ).
        temperature: T.
        first_data: A few of the data, to compare a sampled predictive with the mode; not in files.
        data: The data of the fit, not copied, for the mode of the linear model; None if they could be read only once,
            and in a posterior from a file.
        offset: m − θ*, the mean minus the parameters around which functions are linearised; None for zero.
        refinement: Way in which the posterior was refined, for ``osc.maximise_evidence``; not in files.
        tuning: The losses on held-out data by which ``osc.tune`` chose this posterior; not in files, and dropped by
            :meth:`replace` if it changes predictions.
        memory: Bytes, or a text such as "2GB", that the fit was allowed to take, by which its refinement and tuning
            plan as well; None for the default. Not in files.
        processes: Processes that share the data of the fit, which its refinement shares as well; not in files.
        compared: True once a sampled predictive was compared with the mode, which happens once for each posterior.
    """

    fit: Fit
    likelihood: Likelihood
    prior: Prior
    temperature: float | Tensor = 1.0
    first_data: tuple[Inputs, Tensor] | None = None
    data: Any = None
    offset: Float[Tensor, " P"] | None = None
    refinement: Any = field(default=None, init=False)
    tuning: Any = field(default=None, init=False)
    memory: str | int | None = field(default=None, init=False)
    processes: Group = field(default=ALONE, init=False)
    compared: bool = field(default=False, init=False)
    ways: ClassVar[tuple[str, ...]] = ("linearised", "sampled", "mode")

    def __post_init__(self) -> None:
        if not isinstance(self.temperature, Real | Tensor) or not bool(torch.as_tensor(self.temperature) > 0):
            raise ValueError(f"the temperature must be positive, got {self.temperature!r}.")
        network = self.fit.network
        prior = self.prior.bind(network.space)
        if prior.precision.device != network.device:
            prior = prior.to(network.device)
        object.__setattr__(self, "prior", prior)
        if self.likelihood is not self.fit.likelihood:
            with torch.no_grad():
                self.likelihood.curvature_scale(self.fit.likelihood)  # an error if it needs a new fit

    @property
    def network(self) -> Network:  # type: ignore[override]
        """The network at the mode θ*, around which functions are linearised."""
        return self.fit.network

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
        """m, flat, in the order of ``named_parameters()``: θ* unless the posterior is refined."""
        return self.network.mean if self.offset is None else self.network.mean + self.offset

    @property
    def seen(self) -> Bool[Tensor, " P"]:
        """A mask of the parameters whose mode the data move, on the CPU; over all others the evidence integrates.

        Outside are those that the posterior is not over, and under a prior without correlations those without curvature
        (:attr:`osculate.structures.Curvature.seen`). The Hessian's negative directions, which the posterior leaves to
        the prior, count as seen.
        """
        exact = self.prior.independent and self.fit.kind != Hessian.name
        return self.structure.seen if exact else self.structure.covered

    def seen_apart(self, theta: Float[Tensor, " P"]) -> Float[Tensor, " P"]:
        """θ − μ of the parameters that the data see, and zero for the others."""
        return self.prior.apart(theta) * self.seen.to(theta.device)

    @property
    def differentiated(self) -> bool:
        """True if derivatives by the prior precision, the noise scale or the temperature are asked for."""
        given = (*self.prior.hyperparameters.values(), self.temperature, getattr(self.likelihood, "scale", None))
        return torch.is_grad_enabled() and any(isinstance(value, Tensor) and value.requires_grad for value in given)

    @property
    def precision(self) -> PosteriorPrecision:
        """Λ, factorised; kept, unless it has a graph, which one backward pass uses up."""
        return self._precision() if self.differentiated else self._kept_precision

    @cached_property
    def _kept_precision(self) -> PosteriorPrecision:
        with torch.no_grad():
            return self._precision()

    def _precision(self) -> PosteriorPrecision:
        scale = self.likelihood.curvature_scale(self.fit.likelihood)
        return self.fit.curvature.precision(scale / self.temperature, self.prior)

    def replace(self, **changes: Any) -> "Gaussian":
        """Another posterior with a different prior, likelihood (noise scale) or temperature.

        Raises:
            TypeError: an unknown field.
            ValueError: a likelihood that needs a new fit; only the noise scale of ``Gaussian`` does not.

        >>> import osculate as osc
        >>> data = torch.randn(20, 2), torch.randn(20, 1)
        >>> q = osc.laplace(torch.nn.Linear(2, 1), osc.likelihoods.Gaussian(), data, prior=1.0)
        >>> bool(q.replace(prior=osc.priors.Isotropic(100.0)).variance().sum() < q.variance().sum())
        True
        """
        result = replace(self, **changes)
        kept: dict[str, Any] = {"memory": self.memory, "processes": self.processes}
        if result.offset is not None:
            kept["refinement"] = self.refinement
        return result.noted(**kept, **({"tuning": self.tuning} if changes.keys() <= {"first_data", "data"} else {}))

    def through(self, module: Any, x: Inputs) -> "Gaussian":
        """The same posterior over the weights of another function of them, such as a layer or an image behind a lens.

        Args:
            module: A module with the parameters of this network, by the same names and with the same values.
            x: Some inputs of it.

        Raises:
            ValueError: it has no parameter of one of the names.
        """
        network = Network(module, self.network.space.names)
        plan = replace(make_plan(network, moved(x, network.device)), blocks=self.fit.plan.blocks)
        return self.replace(fit=replace(self.fit, network=network, plan=plan), data=None, first_data=None)

    def noted(self, **notes: Any) -> "Gaussian":
        """The same posterior with notes on how it was made.

        Args:
            **notes: New values of ``tuning``, ``refinement``, ``memory`` and ``processes``.
        """
        result = replace(self)
        for name in ("tuning", "refinement", "memory", "processes"):
            object.__setattr__(result, name, notes.get(name, getattr(self, name)))
        return result

    def sample(self, n: int = 1, generator: torch.Generator | None = None) -> Float[Tensor, "n P"]:
        """Draw ``n`` parameter vectors."""
        return self.mean + self.precision.sample(n, generator, self.mean)

    def draws(self, samples: int, generator: torch.Generator | None = None) -> Iterator[Callable[[Inputs], Tensor]]:
        """The network itself, not linearised, at sampled weights."""
        for _ in range(samples):
            theta = self.network.mean + self.precision.sample(1, generator, self.mean)[0]
            yield partial(self.network, theta=self.network.space.unflatten(theta))

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

        Only the network is converted to half precision: curvature and prior are then kept in single precision, as for a
        network that was fitted in half precision.
        """
        network, curvature = self.network.to(device, dtype), self.structure
        state = None if dtype is None else network.state_dtype

        def there(tensor: Tensor) -> Tensor:
            return tensor.to(device=device, dtype=state if tensor.is_floating_point() else None)

        moved = curvature.with_tensors({name: there(tensor) for name, tensor in curvature.tensors().items()})
        blocks = tuple(replace(b, positions=b.positions.to(device)) for b in moved.blocks)  # type: ignore[type-var]
        statistics = {name: value.to(device) for name, value in self.fit.statistics.items()}
        fit = replace(self.fit, curvature=replace(moved, blocks=blocks), statistics=statistics, network=network)
        prior = self.prior.to(device, state)
        offset = None if self.offset is None else there(self.offset)
        return self.replace(fit=fit, prior=prior, offset=offset)

    def __repr__(self) -> str:
        kind = "" if self.fit.kind == GGN.name else f"curvature={self.fit.kind!r}, "
        return (
            f"Gaussian(structure={self.structure.structure.name!r}, {kind}P={self.mean.numel():,}, "
            f"N={self.num_data:,}, likelihood={type(self.likelihood).__name__}, prior={type(self.prior).__name__})"
        )


def as_gaussian(q: object, what: str) -> Gaussian:
    """A Gaussian posterior, given as itself or as the result of ``osc.train``.

    Args:
        q: A posterior or training result.
        what: Name of the caller, for the error.

    Raises:
        TypeError: any other object.
    """
    posterior = as_posterior(q)
    if not isinstance(posterior, Gaussian):
        raise TypeError(
            f"{what} needs a Gaussian posterior, got {type(posterior).__name__}. {posterior.gaussian_instead}"
        )
    return posterior
