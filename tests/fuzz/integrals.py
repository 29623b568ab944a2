"""Predictives by integrals in float64: sums over many function values, without the nodes of the package."""

from math import log, pi

import torch
from scipy.stats import norm, qmc
from torch import Tensor

from osculate import likelihoods
from osculate.likelihoods import Likelihood
from tests.fuzz.dense import log_density

#: Points of the trapezoidal rule along one function value, and standard deviations that it reaches.
POINTS, REACH = 4001, 12.0
#: Points of a quasi-random set for several function values.
SOBOL = 2**13


def grid(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Values of f (*M, K) and the logarithms of their weights under N(mean, variance)."""
    z = torch.linspace(-REACH, REACH, POINTS, dtype=torch.double)
    weights = -0.5 * z.square() - 0.5 * log(2 * pi) + log(float(z[1] - z[0]))
    return mean.unsqueeze(-1) + variance.clamp(min=0).sqrt().unsqueeze(-1) * z, weights


def log_marginal(likelihood: Likelihood, mean: Tensor, covariance: Tensor, y: Tensor) -> Tensor:
    """log ∫ p(y|f) N(f; mean, covariance) df for data and positions (N, T, E), targets (N, T)."""
    if isinstance(likelihood, likelihoods.Gaussian):
        scale = torch.as_tensor(likelihood.scale, dtype=torch.double).reshape(-1)
        total = covariance[..., 0, 0] + scale**2
        return -0.5 * (y - mean[..., 0]).square() / total - 0.5 * (2 * pi * total).log()
    if isinstance(likelihood, likelihoods.HeteroscedasticGaussian):
        m, s, v = mean[..., 0], mean[..., 1], covariance
        f, weights = grid(s, v[..., 1, 1])
        slope = torch.where(v[..., 1, 1] > 1e-12, v[..., 0, 1] / v[..., 1, 1].clamp(min=1e-12), 0.0)
        centre = m.unsqueeze(-1) + slope.unsqueeze(-1) * (f - s.unsqueeze(-1))
        rest = (v[..., 0, 0] - slope * v[..., 0, 1]).clamp(min=0).unsqueeze(-1) + f.exp()
        terms = -0.5 * (y.unsqueeze(-1) - centre).square() / rest - 0.5 * (2 * pi * rest).log()
        return (terms + weights).logsumexp(-1)
    f, weights = grid(mean[..., 0], covariance[..., 0, 0])
    at = log_density(likelihood, f.unsqueeze(-1), y.unsqueeze(-1).expand_as(f))
    return (at + weights).logsumexp(-1)


def probabilities(mean: Tensor, covariance: Tensor) -> Tensor:
    """E softmax(f) at positions (M, E), or E sigmoid(f) for E = 1."""
    if mean.shape[-1] <= 2:
        two = mean.shape[-1] == 2
        centre = mean[..., 0] - mean[..., 1] if two else mean[..., 0]
        v = covariance
        spread = v[..., 0, 0] + v[..., 1, 1] - 2 * v[..., 0, 1] if two else v[..., 0, 0]
        f, weights = grid(centre, spread)
        first = (f.sigmoid() * weights.exp()).sum(-1, keepdim=True)
        return torch.cat([first, 1 - first], -1) if two else first
    uniform = qmc.Sobol(mean.shape[-1], seed=1).random(SOBOL)
    z = torch.from_numpy(norm.ppf(uniform.clip(1e-12, 1 - 1e-12)))
    values, vectors = torch.linalg.eigh(covariance)
    root = vectors * values.clamp(min=0).sqrt().unsqueeze(-2)
    return (mean.unsqueeze(-2) + z @ root.mT).softmax(-1).mean(-2)


def by_link(link: str, mean: Tensor, covariance: Tensor) -> Tensor | None:
    """The definition of a link that is no integral, at positions (M, E); None for the others."""
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    if link == "probit":
        shrunk = mean / (1 + pi * variance / 8).sqrt()
        return shrunk.softmax(-1) if mean.shape[-1] > 1 else shrunk.sigmoid()
    if link == "mean_field":
        found = []
        for c in range(mean.shape[-1]):
            apart = variance[..., c : c + 1] + variance - 2 * covariance[..., c, :]
            found.append(1 / (-(mean[..., c : c + 1] - mean) / (1 + pi / 8 * apart).sqrt()).exp().sum(-1))
        total = torch.stack(found, -1)
        return total / total.sum(-1, keepdim=True)
    if link == "bridge":
        classes, total = mean.shape[-1], covariance.sum((-2, -1)).unsqueeze(-1)
        mean = mean - mean.mean(-1, keepdim=True)
        variance = variance - covariance.sum(-1).square() / total
        factor = (variance.mean(-1, keepdim=True) / (classes / 2) ** 0.5).clamp(min=1)
        mean, variance = mean / factor.sqrt(), variance / factor
        alpha = (1 - 2 / classes + mean.exp() * (-mean).exp().sum(-1, keepdim=True) / classes**2) / variance
        return alpha / alpha.sum(-1, keepdim=True)
    return None
