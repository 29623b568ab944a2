"""Draws from the exact posterior of the linear model by conjugate gradients in the space of the data."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.batches import Data
from osculate.evidence.linear import LinearModel
from osculate.likelihoods import Gaussian as GaussianNoise
from osculate.linalg import Product, conjugate_gradients
from osculate.memory import even_parts
from osculate.posteriors import Gaussian, as_gaussian
from osculate.progress import track
from osculate.randomness import drawn_on
from osculate.structures import Dual
from osculate.structures.blocks.dual import DualPrecision

#: Number of draws that pass through the network at once.
AT_ONCE = 16
#: Relative residual of the solves, and their largest number of products.
TOLERANCE, PRODUCTS = 1e-3, 100


def pathwise_draws(
    q: Any,
    samples: int,
    generator: torch.Generator | None = None,
    data: Data | None = None,
    progress: bool = False,
) -> Iterator[Float[Tensor, "s P"]]:
    r"""Draw θ − m from the posterior of the linear model with Gaussian noise, in chunks. [wilson2020]

    .. math:: \theta - m = \theta_0 - \Sigma J^\top (J\Sigma J^\top + \sigma^2 I)^{-1} (J\theta_0 + \varepsilon), \qquad
              \theta_0 \sim N(0, \Sigma),\ \varepsilon \sim N(0, \sigma^2 I)

    Matheron's rule, pathwise conditioning of a draw from the prior. J stands for passes over all data, so that draws
    are exact up to the tolerance of the solves, also for structures that approximate the curvature, such as
    ``osc.structures.Dual(basis=…)``, which serves as preconditioner.

    Args:
        q: A Gaussian posterior with Gaussian noise.
        samples: Number of draws.
        generator: Source of random numbers.
        data: The data of the fit, where the posterior does not have them.
        progress: Show a progress bar.

    Raises:
        TypeError: another likelihood.

    Cost: for each draw two passes over the data an iteration of conjugate gradients, about 10 to 30 of them.
    """
    q = as_gaussian(q, "pathwise_draws")
    if not isinstance(q.likelihood, GaussianNoise):
        raise TypeError(f"pathwise draws need Gaussian noise, got {type(q.likelihood).__name__}: use q.sample().")
    q.processes.require_alone("pathwise draws are made", "use q.sample()")
    model, space, mean = LinearModel(q, data), q.network.space, q.network.mean
    scale = torch.as_tensor(q.likelihood.scale, dtype=torch.double, device=mean.device) * float(q.temperature) ** 0.5
    noise = torch.cat([scale.expand_as(y).reshape(-1) for _, y in model.parts])

    def covariance(u: Float[Tensor, "S K"]) -> Float[Tensor, "S K"]:
        pulled = q.prior.solve(model.pulled(u.to(mean)), space)
        return model.pushed(model.covered(pulled)).double() + noise.square() * u

    parts, precondition = even_parts(samples, AT_ONCE), _preconditioner(q, noise)
    for part in track(parts, "draws", len(parts), progress):
        device = drawn_on(mean, generator)
        white = torch.randn(part.stop - part.start, space.size, generator=generator, dtype=torch.double, device=device)
        start = model.covered(q.prior.colour(white.to(mean), space))
        level = torch.randn(len(start), len(noise), generator=generator, dtype=torch.double, device=device)
        right = model.pushed(start).double() + level.to(noise) * noise
        solution = conjugate_gradients(
            covariance, right, precondition=precondition, tolerance=TOLERANCE, max_iterations=PRODUCTS
        )
        yield start - model.covered(q.prior.solve(model.pulled(solution.x.to(mean)), space))


def _preconditioner(q: Gaussian, noise: Float[Tensor, " K"]) -> Product | None:
    """u to (K̂ + σ² I)⁻¹ u with the rows of a fit to one datum; None for other structures."""
    (part, *others), structure = q.precision.parts, q.structure.structure
    if others or not isinstance(part, DualPrecision) or not isinstance(structure, Dual) or q.num_data > 1:
        return None
    basis, sigma = structure.basis, noise[0]
    beyond = part.block.others
    rest = 1 if beyond is None else 1 + part.scale * beyond.variance(part.delta)

    def apply(u: Float[Tensor, "S K"]) -> Float[Tensor, "S K"]:
        if basis is None:
            return torch.cholesky_solve(u.T, part.factor).T / sigma**2
        vectors = basis.to(u)
        within = u @ vectors.T
        return (torch.cholesky_solve(within.T, part.factor).T @ vectors + (u - within @ vectors) / rest) / sigma**2

    return apply
