"""Posteriors of the image: an exact Gaussian, or draws from it if it has too many pixels for a matrix."""

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.inverse.evidence import Observed, prior_product
from osculate.inverse.filters import FilterPrior, prior_covariance
from osculate.inverse.image_distributions import DrawnImage, GaussianImage
from osculate.inverse.linearised import AT_ONCE, LinearisedImage
from osculate.inverse.operators import LinearOperator
from osculate.linalg import Product, cholesky, conjugate_gradients
from osculate.memory import even_parts
from osculate.progress import track

#: Default number of singular values of the operator by which noise is propagated to the image.
SINGULAR = 100
#: Largest number of measurements or pixels for which they are those of a dense matrix.
DENSE = 500
#: Variance of pixels that are 0 or 1 at random.
LARGEST_VARIANCE = 0.25


def exact_posterior(
    linearised: LinearisedImage,
    operator: LinearOperator,
    prior: FilterPrior,
    noise: float,
    floor: float = 0.0,
) -> GaussianImage:
    r"""The Gaussian posterior of the image, with its whole covariance. [antoran2023dip]

    .. math:: N\big(f(\hat\theta),\; K_{xx} - K_{xx} A^\top (A K_{xx} A^\top + \sigma^2 I)^{-1} A K_{xx}
              + \sigma_x^2 I\big), \qquad K_{xx} = J \Sigma J^\top

    With more measurements than pixels, M > D, a square root of AᵀA replaces A, as the posterior depends on AᵀA alone.

    Args:
        linearised: h.
        operator: A.
        prior: Σ.
        noise: σ.
        floor: σ_x, see :func:`image_noise`.

    Cost: D backward passes for D = H·W pixels, once for a linearised network; D²·P operations; the Jacobian, D·P
    numbers, and a few matrices of D² numbers in double precision.
    """
    kxx = prior_covariance(prior, linearised.jacobian)
    if operator.measurements > operator.pixels:
        units = torch.eye(operator.pixels).double().split(64)
        gram = torch.cat([operator.transpose(operator.apply(unit)) for unit in units])
        values, vectors = torch.linalg.eigh(0.5 * (gram + gram.T))
        root = (vectors * values.clamp(min=0).sqrt()).to(kxx)  # R Rᵀ = AᵀA
        cross = kxx @ root
        kyy = root.T @ cross
    else:
        cross = operator(kxx.reshape(-1, *operator.image_shape)).flatten(1)  # K_xx Aᵀ
        kyy = operator(cross.T.reshape(-1, *operator.image_shape)).flatten(1)
    factor = cholesky(0.5 * (kyy + kyy.T) + noise**2 * torch.eye(len(kyy)).to(kyy))
    explained = torch.linalg.solve_triangular(factor, cross.T, upper=False)
    covariance = kxx - explained.T @ explained
    covariance = 0.5 * (covariance + covariance.T) + floor**2 * torch.eye(len(kxx)).to(kxx)
    return GaussianImage(linearised.image, covariance)


def drawn_posterior(
    linearised: LinearisedImage,
    operator: LinearOperator,
    prior: FilterPrior,
    noise: float,
    floor: float = 0.0,
    observed: Observed | None = None,
    samples: int = 64,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> DrawnImage:
    r"""Draws from the same posterior by conjugate gradients, with memory for a few images.

    .. math:: x = f(\hat\theta) + J\theta_0 - J\Sigma J^\top A^\top (A J\Sigma J^\top A^\top + \sigma^2 I)^{-1}
              (A J\theta_0 + \varepsilon), \qquad \theta_0 \sim N(0, \Sigma),\ \varepsilon \sim N(0, \sigma^2 I)

    Matheron's rule: pathwise conditioning of a draw from the prior. [wilson2020]

    Args:
        linearised: h.
        operator: A.
        prior: Σ.
        noise: σ.
        floor: σ_x.
        observed: Data terms of the evidence; their covariance in a small basis is the preconditioner.
        samples: Number of draws.
        generator: Source of random numbers.
        progress: Show a progress bar.

    Cost: for each draw two passes through the network an iteration of conjugate gradients, 10 to 30 of them.
    """
    drawn, precondition = [], _preconditioner(observed, prior, noise)

    def covariance(u: Float[Tensor, "S M"]) -> Float[Tensor, "S M"]:
        return prior_product(linearised, operator, prior, u.to(linearised.image)).double() + noise**2 * u

    parts = even_parts(samples, AT_ONCE)
    for part in track(parts, "error bars: draws", len(parts), progress):
        images = linearised.jvp(prior.sample(part.stop - part.start, linearised.weights, generator))
        level = noise * torch.randn(len(images), operator.measurements, generator=generator, dtype=torch.double)
        wanted = operator(images).flatten(1).double() + level.to(images.device)
        solution = conjugate_gradients(
            covariance, wanted, precondition=precondition, tolerance=1e-3, max_iterations=100
        )
        back = linearised.vjp(operator.adjoint(solution.x.to(images).reshape(-1, *operator.data_shape)))
        drawn.append(linearised.image + images - linearised.jvp(prior.covariance_product(back)))
    return DrawnImage(linearised.image, torch.cat(drawn), floor)


def image_noise(operator: LinearOperator, noise: float, vectors: int = SINGULAR) -> float:
    r"""The noise of the data propagated to an image in [0, 1], as one standard deviation for all pixels.

    .. math:: \sigma_x^2 = \frac1D \sum_i \min\big(\sigma^2 / s_i^2,\; \tfrac14\big)

    over the largest singular values s of A, by default 100, without those below a millionth of the largest, as
    directions that A does not measure carry no noise. It represents what the linearised network cannot express, keeps
    densities of whole images finite, and is not part of the model. The authors of the document use it without the
    bound, σ² tr (AᵀA)⁺/D, which is arbitrary if A blurs. 1/4 is the variance of pixels that are 0 or 1 at random. The
    cut-off makes it smaller for larger images: for the identity it is σ for 10 × 10 pixels and σ/4 for 40 × 40, if σ is
    below 1/2.
    """
    return carried_back(singular_values(operator, vectors), noise, operator.pixels)


def carried_back(values: Float[Tensor, " k"], noise: float, pixels: int) -> float:
    """:func:`image_noise` from singular values."""
    return float(((noise / values).square().clamp(max=LARGEST_VARIANCE).sum() / pixels).sqrt())


def singular_values(operator: LinearOperator, vectors: int = SINGULAR) -> Float[Tensor, " k"]:
    """The largest singular values of an operator that are not zero."""
    if min(operator.measurements, operator.pixels) <= DENSE:
        values = torch.linalg.svdvals(operator.matrix())[:vectors]
    else:
        from scipy.sparse.linalg import svds

        found = svds(operator.as_scipy(), k=vectors, return_singular_vectors=False, random_state=0)
        values = torch.from_numpy(found.copy())
    return values[values > 1e-6 * values.max()]


def _preconditioner(observed: Observed | None, prior: FilterPrior, noise: float) -> Product | None:
    """u to (Q K Qᵀ + σ² I)⁻¹ u, K the prior covariance of the data in the basis of the evidence."""
    if observed is None:
        return None
    factor, beyond = observed.factorised(prior, noise**2)

    def apply(u: Float[Tensor, "S M"]) -> Float[Tensor, "S M"]:
        if observed.basis is None:
            return torch.cholesky_solve(u.T, factor).T
        within = u @ observed.basis.T
        solved = torch.cholesky_solve(within.T, factor).T
        return (u - within @ observed.basis) / beyond + solved @ observed.basis

    return apply
