"""The evidence of the linearised image, maximised over variances, length-scales and noise."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from osculate.inverse.filters import FilterPrior
from osculate.inverse.observed import Observed
from osculate.linalg import cholesky

#: Where the logarithms of variance and length-scale may go; and that of the noise, from where it begins.
VARIANCES, LENGTHSCALES, NOISE = (-14.0, 10.0), (-3.0, 4.0), (-5.0, 5.0)

#: A prior over the hyperparameters: −log p, differentiable.
HyperPrior = Callable[[FilterPrior], Tensor]


@dataclass(frozen=True)
class Tuned:
    """The result of :func:`tune_filters`.

    Attributes:
        prior: prior with the values of largest evidence.
        noise: σ.
        log_evidence: there, in nats, of all data; around given weights a lower bound of it.
        evaluations: number of evaluations of the evidence.
        at_ends: number of log variances that ended at a bound: the data ask for a block without
            variance, say, not for this value.
    """

    prior: FilterPrior
    noise: float
    log_evidence: float
    evaluations: int
    at_ends: int


def log_evidence(
    observed: Observed,
    prior: FilterPrior,
    noise: Float[Tensor, ""],
    weights: Float[Tensor, " P"] | None = None,
    seen: Float[Tensor, " M"] | None = None,
) -> Float[Tensor, ""]:
    r"""log p(y) of the linearised model, with all constants; differentiable in the prior's values and the noise.

    Around given weights θ, with the prediction A h(θ) that goes with them (the network's own, or those that
    :func:`~osculate.inverse.linearised.linear_mode` finds),

    .. math:: -\tfrac12\Big(\tfrac{1}{\sigma^2}\lVert y - A h(\theta)\rVert^2 + \theta^\top\Sigma^{-1}\theta
              + \log\lvert A J\Sigma J^\top A^\top + \sigma^2 I\rvert + M\log 2\pi\Big)

    [antoran2023dip], which is a lower bound: without weights it is taken at the mode of the linear model, which
    minimises the first two terms together. They are then
    r₀ᵀ K⁻¹ r₀ with r₀ = y − A f(θ̂) + A J θ̂: the exact evidence. Where the basis of the data is smaller than what images
    reach, the determinant is an upper bound (see :class:`~osculate.inverse.observed.Observed`), and the evidence around
    weights is lower still.

    Args:
        observed: the data, and their covariance by classes.
        prior: Σ.
        noise: σ.
        weights: θ.
        seen: A h(θ).

    Raises:
        ValueError: the covariance is not positive definite, or not finite.
    """
    variance = noise.square()
    classes = torch.cat(prior.class_weights())
    covariance, beyond = observed.covariance(classes), observed.variance_beyond(classes) + variance
    covariance = covariance + variance * torch.eye(len(covariance)).to(covariance)
    factor = cholesky(covariance)
    log_det = 2 * factor.diagonal().log().sum() + (observed.size - len(covariance)) * beyond.log()
    if weights is None:
        within, outside = observed.inside(observed.data - observed.seen + observed.seen_weights)
        white = torch.linalg.solve_triangular(factor, within.unsqueeze(1), upper=False)
        misfit = white.square().sum() + outside / beyond
    else:
        assert seen is not None
        misfit = (observed.data - seen).square().sum() / variance + prior.penalty(weights)
    return -0.5 * (misfit + log_det + observed.size * math.log(2 * math.pi))


def tune_filters(
    evidence: Callable[[FilterPrior, Tensor], Tensor],
    prior: FilterPrior,
    noise: float,
    fixed_noise: bool,
    hyper_prior: HyperPrior | None = None,
    max_evaluations: int = 300,
) -> Tuned:
    """Maximise the evidence over the logarithms of all variances, length-scales and, unless it is known, the noise.

    By L-BFGS within wide bounds, from the values of ``prior`` and ``noise``.

    Args:
        evidence: prior and noise to log p(y).
        prior: prior at which to begin.
        noise: σ, likewise.
        fixed_noise: keep it.
        hyper_prior: −log p of the prior's values, added.
        max_evaluations: largest number of evaluations.

    Raises:
        ValueError: the objective is not finite at the start.
    """
    correlated = prior.correlated
    start = torch.cat(
        [prior.variance.log(), prior.lengthscale[correlated].log(), torch.tensor([math.log(noise)], dtype=torch.double)]
    )
    bounds = [VARIANCES] * len(prior.variance) + [LENGTHSCALES] * len(correlated)
    least, most = (0.0, 0.0) if fixed_noise else NOISE
    bounds.append((start[-1].item() + least, start[-1].item() + most))

    def read(values: Tensor) -> tuple[FilterPrior, Tensor]:
        variance, rest = values[: len(prior.variance)], values[len(prior.variance) : -1]
        lengthscale = prior.lengthscale.log().index_put((torch.tensor(correlated, dtype=torch.long),), rest)
        return prior.replace(variance.exp(), lengthscale.exp()), values[-1].exp()

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:

        at = torch.tensor(values, requires_grad=True)
        with torch.enable_grad():
            proposal, level = read(at)
            loss = -evidence(proposal, level)
            if hyper_prior is not None:
                loss = loss + hyper_prior(proposal)
            (slope,) = torch.autograd.grad(loss, at)
        return loss.item(), slope.numpy()

    if not math.isfinite(objective(start.numpy())[0]):
        raise ValueError("the evidence is not finite where its maximisation begins: the data or the network overflow.")
    from scipy.optimize import minimize

    found = minimize(
        objective, start.numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxfun": max_evaluations}
    )
    if found.nfev >= max_evaluations:
        warnings.warn(
            f"the evidence was still rising after {found.nfev} evaluations: error bars would change with more of them.",
            stacklevel=2,
        )
    best, level = read(torch.tensor(found.x))
    value = evidence(best, level)
    distance = best.variance.log()[:, None] - torch.tensor(VARIANCES, dtype=torch.double)
    at_ends = int(distance.abs().min(1).values.lt(1e-6).sum())
    return Tuned(best, noise if fixed_noise else float(level), float(value), int(found.nfev), at_ends)
