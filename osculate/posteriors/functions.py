"""The Gaussian process that a posterior defines over functions: at some inputs, and given further observations."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.batches import require_finite, require_inputs
from osculate.inputs import Inputs, concatenate, count, from_arrays, moved, take
from osculate.linalg import cholesky, jittered
from osculate.posteriors.gaussian import Gaussian, as_gaussian
from osculate.posteriors.linearised import joint_covariance, moments, require_room, single_outputs


def function_posterior(q: Any, x: Any) -> "FunctionPosterior":
    r"""The joint Gaussian of the linearised function values at some inputs.

    .. math:: f(x) \sim N\big(f(x; \theta^*) + J(x)(m - \theta^*),\; J(x) \Lambda^{-1} J(x')^\top\big)

    It carries the gradients of inputs and hyperparameters that require them, and can be conditioned on further
    observations without a fit. [khan2019; immer2021]

    Args:
        q: A Gaussian posterior, or what ``osc.train`` returned.
        x: Inputs (N, …).

    Raises:
        TypeError: the posterior has no linearised function.
        ValueError: empty or non-finite inputs.

    Cost: that of :func:`osculate.functional_variance` for mean and variance; for covariance, draws, densities and
    conditioning K × P numbers of one block of parameters at a time, with K = N·C values, and K² for the result.

    >>> import osculate as osc
    >>> X, Y = torch.randn(30, 2), torch.randn(30, 1)
    >>> q = osc.laplace(torch.nn.Linear(2, 1), osc.likelihoods.Gaussian(0.3), (X, Y), prior=1.0)
    >>> g = osc.function_posterior(q, X[:5])
    >>> g.rsample().shape, bool((g.condition(X[:5], Y[:5]).variance < g.variance).all())
    (torch.Size([5, 1]), True)
    """
    gaussian = as_gaussian(q, "function_posterior")
    x = from_arrays(x, gaussian.network.dtype)
    require_inputs(x)
    return FunctionPosterior(gaussian, moved(x, gaussian.network.device))


@dataclass(frozen=True, eq=False)
class FunctionPosterior:
    """A Gaussian over the function values at N inputs with C outputs each, as :func:`function_posterior` makes it.

    Everything is computed on demand and kept, with its graph: several backward passes need ``retain_graph=True``.

    Attributes:
        q: The posterior over the weights.
        x: Inputs.
        observed: Inputs, targets and noise variances (one for each value) of further observations; None for none.
    """

    q: Gaussian
    x: Inputs
    observed: tuple[Inputs, Float[Tensor, "M *C"], Float[Tensor, " K"]] | None = None

    @cached_property
    def mean(self) -> Float[Tensor, "N *C"]:
        """The means of the values."""
        if self.observed is None:
            return self._prior[0]
        return self.joint[0].reshape(count(self.x), *self.observed[1].shape[1:]).to(self.q.mean.dtype)

    @cached_property
    def variance(self) -> Float[Tensor, "N *C"]:
        """The variances of the values."""
        if self.observed is None:
            return self._prior[1]
        return self.joint[1].diagonal().clamp(min=0).reshape(self.mean.shape).to(self.mean.dtype)

    @cached_property
    def covariance(self) -> Float[Tensor, "K K"]:
        """The covariances of all values, ordered by input."""
        return self.joint[1].to(self.q.mean.dtype)

    @property
    def jitter(self) -> float:
        """Share of the variances that was added to the covariance to factorise it, zero if it was none."""
        return self._root[1]

    def rsample(self, sample_shape: Any = (), generator: torch.Generator | None = None) -> Float[Tensor, "..."]:
        """Draw values m + L z, with the gradients of m and L.

        Args:
            sample_shape: Shape in front of the values, or the number of draws.
            generator: Source of random numbers.
        """
        shape = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        factor = self._root[0]
        z = torch.randn(*shape, len(factor), generator=generator, dtype=torch.double)
        return (self.mean + (z.to(factor) @ factor.mT).reshape(*shape, *self.mean.shape)).to(self.mean.dtype)

    def sample(self, sample_shape: Any = (), generator: torch.Generator | None = None) -> Float[Tensor, "..."]:
        """Draw values without gradients."""
        with torch.no_grad():
            return self.rsample(sample_shape, generator)

    def log_prob(self, f: Float[Tensor, "..."]) -> Float[Tensor, "*S"]:
        """The log density of values.

        Raises:
            ValueError: they have another shape than the mean, apart from leading axes.
        """
        if f.shape[max(0, f.ndim - self.mean.ndim) :] != self.mean.shape:
            raise ValueError(
                f"values of shape {tuple(f.shape)} do not end with that of the mean, {tuple(self.mean.shape)}."
            )
        factor, apart = self._root[0], (f - self.mean).double()
        apart = apart.reshape(*apart.shape[: apart.ndim - self.mean.ndim], -1)
        white = torch.linalg.solve_triangular(factor, apart.unsqueeze(-1), upper=False).squeeze(-1)
        constant = 2 * factor.diagonal().log().sum() + len(factor) * torch.log(factor.new_tensor(2 * torch.pi))
        return (-0.5 * (white.square().sum(-1) + constant)).to(self.mean.dtype)

    def at(self, x: Inputs) -> "FunctionPosterior":
        """The same process at other inputs, with the same observations."""
        require_inputs(x)
        return FunctionPosterior(self.q, moved(x, self.q.network.device), self.observed)

    def condition(
        self, x: Inputs, y: Float[Tensor, "M *C"], noise: float | Tensor | None = None
    ) -> "FunctionPosterior":
        """The process given observations y = f(x) + ε, ε ~ N(0, T·σ²), at the same inputs as before.

        For the linear model this is the posterior of a fit to all data with the same prior, noise and temperature T.

        Args:
            x: Inputs of the observations.
            y: Observed values.
            noise: σ, one or one for each output; by default that of a Gaussian likelihood.

        Raises:
            ValueError: y has another shape than the values at x, or the likelihood has no noise scale and none is
                given.
        """
        require_inputs(x)
        device = self.q.network.device
        x, y = moved(x, device), y.to(device, self.q.mean.dtype)
        require_finite(y, "y")
        scale = getattr(self.q.likelihood, "scale", None) if noise is None else noise
        if scale is None:
            raise ValueError(
                f"{type(self.q.likelihood).__name__} has no noise scale: pass noise=… to condition on values of the "
                "function, or fit again with the additional data."
            )
        with torch.no_grad():
            expected = (count(x), *self.q.network(take(x, slice(1))).shape[1:])
        if tuple(y.shape) != expected:
            raise ValueError(f"observations of shape {tuple(y.shape)} do not fit values of shape {expected}.")
        variance = self.q.temperature * torch.as_tensor(scale, dtype=torch.double, device=device).square()
        noises = variance.expand(y.shape).reshape(-1) if variance.ndim else variance.expand(y.numel())
        if self.observed is not None:
            before = self.observed
            x, y = concatenate([before[0], x]), torch.cat([before[1], y])
            noises = torch.cat([before[2], noises])
        return replace(self, observed=(x, y, noises))

    @cached_property
    def _prior(self) -> tuple[Float[Tensor, "N *C"], Float[Tensor, "N *C"]]:
        """Means and variances without further observations."""
        mean, variance = moments(self.q, self.x, single_outputs)
        return mean, variance.reshape(mean.shape)

    @cached_property
    def joint(self) -> tuple[Float[Tensor, " K"], Float[Tensor, "K K"]]:
        """Mean and covariance of all values, in double precision."""
        every = self.x if self.observed is None else concatenate([self.observed[0], self.x])
        rows = count(every) * self.q.fit.plan.outputs
        way_out = "Take fewer inputs together, or draw functions with osc.sample_functions."
        require_room(self.q, rows * (rows + self.q.mean.numel()), "rows and covariances of all inputs", way_out)
        mean, covariance = joint_covariance(self.q, every)
        mean = mean.double()
        if self.observed is None:
            return mean, covariance
        _, y, noises = self.observed
        return conditioned(mean, covariance, y.reshape(-1), noises)

    @cached_property
    def _root(self) -> tuple[Float[Tensor, "K K"], float]:
        """L with L Lᵀ the covariance, and its jitter."""
        return jittered(self.joint[1])


def conditioned(
    mean: Float[Tensor, "*B K"],
    covariance: Float[Tensor, "*B K K"],
    y: Float[Tensor, "*B M"],
    noise: Float[Tensor, "*B M"],
) -> tuple[Float[Tensor, "*B k"], Float[Tensor, "*B k k"]]:
    """Mean and covariance of all but the first M of K Gaussian values, given noisy observations of these.

    Args:
        mean: Means, in double precision.
        covariance: Covariances.
        y: Observations.
        noise: Their noise variances.
    """
    seen = y.shape[-1]
    factor = cholesky(covariance[..., :seen, :seen] + noise.diag_embed())
    right = torch.cat([covariance[..., :seen, seen:], (y - mean[..., :seen]).unsqueeze(-1)], -1)
    white = torch.linalg.solve_triangular(factor, right, upper=False)
    halves, apart = white[..., :-1], white[..., -1:]
    own = covariance[..., seen:, seen:]
    rounding = mean.shape[-1] * torch.finfo(own.dtype).eps * own.diagonal(dim1=-2, dim2=-1)  # of values that are known
    left = own - halves.mT @ halves + rounding.diag_embed()
    return mean[..., seen:] + (halves.mT @ apart).squeeze(-1), left
