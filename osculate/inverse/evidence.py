"""The linearised image in data space, its evidence, and variances, length-scales and noise tuned by the evidence."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from osculate.inverse.classical import differences
from osculate.inverse.filters import FilterPrior, class_diagonals, class_grams
from osculate.inverse.linearised import LinearisedImage
from osculate.inverse.operators import LinearOperator
from osculate.linalg import cholesky

#: Bounds on the logarithms of variance and length-scale, and on that of the noise relative to its initial value.
VARIANCES, LENGTHSCALES, NOISE = (-14.0, 10.0), (-3.0, 4.0), (-5.0, 5.0)

#: Default limit on the directions in data space that the evidence uses.
RANK = 800
#: Random directions that estimate the mean variance of all other directions.
PROBES = 32
#: Share of the noise variance below which the prior variance of the data counts as zero.
NEGLIGIBLE = 0.001
#: A prior over the hyperparameters: −log p, differentiable.
HyperPrior = Callable[[FilterPrior], Tensor]
#: Largest number of differences between neighbours; a sample of this size gives κ to about 3 %.
DIFFERENCES = 512


@dataclass(frozen=True)
class Observed:
    r"""y = A h(θ) + ε, ε ~ N(0, σ² I), in an orthonormal basis Q of the range of images in data space.

    .. math:: \mathrm{cov}\, y = Q^\top \Big(\sum_c w_c M_c\Big) Q + \Big(\sum_c w_c t_c\Big) (I - Q^\top Q)
              + \sigma^2 I

    with the class weights w of the prior. Directions orthogonal to Q share their mean prior variance Σ w_c t_c, and are
    taken as uncorrelated. This is exact where Q spans the range of A J, always so where no more than ``rank`` numbers
    were measured, or the image has no more pixels; t is then zero. Elsewhere, up to the error of that mean, the
    determinant is not too small, as neither dropping correlations nor averaging variances lowers it.

    Attributes:
        grams: M_c in the basis Q.
        rest: t, estimated by a mean over random directions.
        basis: Q, one vector per row; None for the identity.
        data: y.
        prediction: A f(θ̂).
        weight_part: A J θ̂.
    """

    grams: Float[Tensor, "E R R"]
    rest: Float[Tensor, " E"]
    basis: Float[Tensor, "R M"] | None
    data: Float[Tensor, " M"]
    prediction: Float[Tensor, " M"]
    weight_part: Float[Tensor, " M"]

    @classmethod
    def of(
        cls,
        linearised: LinearisedImage,
        operator: LinearOperator,
        data: Tensor,
        prior: FilterPrior,
        noise: float,
        rank: int = RANK,
        progress: bool = False,
    ) -> "Observed":
        """Pull the basis back through operator and network, and sum by classes of distance.

        Args:
            linearised: h.
            operator: A.
            data: y.
            prior: Prior over the filters; its values determine the directions that a basis of limited rank keeps.
            noise: σ; the prior variance of the data must not be negligible beside σ².
            rank: Largest number of directions.
            progress: Show progress bars.

        Raises:
            ValueError: the image does not change with the filters.

        Cost: R backward passes, and R more in two directions where R < M; 2·R²·P operations for each class.
        """
        basis = data_basis(linearised, operator, prior, rank)
        rows = _pulled_back(linearised, operator, basis, "evidence: Jacobian", progress)
        grams = class_grams(prior, torch.cat(list(rows)))
        prediction = operator(torch.stack([linearised.image, linearised.jvp(linearised.weights[None])[0]])).flatten(1)
        flat = data.reshape(-1).to(prediction).double()
        rest = grams.new_zeros(len(grams))
        if rank < min(operator.measurements, operator.pixels):  # by random vectors orthogonal to the basis
            generator = torch.Generator().manual_seed(1)
            probes = torch.randn(PROBES, operator.measurements, generator=generator, dtype=torch.double).to(basis)
            probes = probes - probes @ basis.T @ basis
            beyond = _pulled_back(linearised, operator, probes, "evidence: beyond the basis", False)
            rest = torch.cat(class_diagonals(prior, beyond)).mean(1) / (operator.measurements - len(basis))
        whole = len(basis) == operator.measurements
        found = cls(grams, rest, None if whole else basis.double(), flat, *prediction.double())
        largest = float(torch.linalg.eigvalsh(found.covariance(torch.cat(prior.class_weights()))).max())
        if not largest > NEGLIGIBLE * noise**2:
            raise ValueError(
                "the network's image does not change with its filters by as much as the noise: it is black, or "
                "saturated at its largest value. Check scale and noise, or train for more steps."
            )
        return found

    @property
    def size(self) -> int:
        """M, the length of y."""
        return len(self.data)

    def factorised(
        self, prior: FilterPrior, noise_variance: float | Tensor
    ) -> tuple[Float[Tensor, "R R"], Float[Tensor, ""]]:
        """L with L Lᵀ the covariance of the data in the basis, noise included; and the variance beyond the basis.

        Raises:
            ValueError: the covariance is not positive definite, or not finite.
        """
        classes = torch.cat(prior.class_weights())
        covariance = self.covariance(classes)
        covariance = covariance + noise_variance * torch.eye(len(covariance)).to(covariance)
        return cholesky(covariance), classes.to(self.rest) @ self.rest + noise_variance

    def covariance(self, weights: Float[Tensor, " E"]) -> Float[Tensor, "R R"]:
        """Σ_c w_c M_c."""
        return (weights.to(self.grams) @ self.grams.flatten(1)).reshape(self.grams.shape[1:])

    def inside(self, vector: Float[Tensor, " M"]) -> tuple[Float[Tensor, " R"], Float[Tensor, ""]]:
        """A vector in the basis, and the squared norm of its part orthogonal to the basis."""
        if self.basis is None:
            return vector, vector.new_zeros(())
        within = self.basis @ vector
        return within, (vector.square().sum() - within.square().sum()).clamp(min=0)


def data_basis(
    linearised: LinearisedImage, operator: LinearOperator, prior: FilterPrior, rank: int
) -> Float[Tensor, "R M"]:
    """Q: the identity, a basis of the range of A, or of that of A J Σ Jᵀ Aᵀ times random vectors. [halko2011]"""
    like = linearised.image
    if operator.measurements <= min(rank, operator.pixels):
        return torch.eye(operator.measurements).to(like)
    if operator.pixels <= rank:
        left, values, _ = torch.linalg.svd(operator.matrix(), full_matrices=False)
        return left[:, values > 1e-10 * values[0]].T.to(like)
    generator = torch.Generator().manual_seed(0)
    tests = torch.randn(rank, operator.measurements, generator=generator, dtype=torch.double).to(like)
    sketch = prior_product(linearised, operator, prior, tests)
    return torch.linalg.qr(sketch.double().T).Q.T.to(like)


def prior_product(
    linearised: LinearisedImage, operator: LinearOperator, prior: FilterPrior, data: Float[Tensor, "S M"]
) -> Float[Tensor, "S M"]:
    """A J Σ Jᵀ Aᵀ u for several u; two passes through the network each, and nothing of size M × M."""
    pulled = linearised.vjp(operator.adjoint(data.reshape(-1, *operator.data_shape)))
    return operator(linearised.jvp(prior.covariance_product(pulled))).flatten(1)


def _pulled_back(
    linearised: LinearisedImage, operator: LinearOperator, vectors: Float[Tensor, "V M"], title: str, progress: bool
) -> Iterator[Float[Tensor, "v P"]]:
    """Rows Jᵀ Aᵀ u for several u, in chunks."""
    return linearised.rows(operator.adjoint(vectors.reshape(-1, *operator.data_shape)), title, progress)


@dataclass(frozen=True)
class Tuned:
    """The result of :func:`tune_filters`.

    Attributes:
        prior: Prior with the values of largest evidence.
        noise: σ.
        log_evidence: Largest value in nats, over all data; around given weights a lower bound.
        evaluations: Number of evaluations of the evidence.
        at_ends: Number of log variances that ended at a bound, so that their values are not determined by the data.
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
    prediction: Float[Tensor, " M"] | None = None,
) -> Float[Tensor, ""]:
    r"""log p(y) of the linearised model, with all constants; differentiable in the prior's values and the noise.

    Around given weights θ, with the prediction A h(θ) that goes with them (the network's own, or those that
    :func:`~osculate.inverse.linearised.linear_mode` finds),

    .. math:: -\tfrac12\Big(\tfrac{1}{\sigma^2}\lVert y - A h(\theta)\rVert^2 + \theta^\top\Sigma^{-1}\theta
              + \log\lvert A J\Sigma J^\top A^\top + \sigma^2 I\rvert + M\log 2\pi\Big)

    [antoran2023dip], which is a lower bound: without weights it is taken at the mode of the linear model, which
    minimises the first two terms together. They are then
    r₀ᵀ K⁻¹ r₀ with r₀ = y − A f(θ̂) + A J θ̂: the exact evidence. If the basis does not span the range of images, the
    determinant is an upper bound (see :class:`Observed`), and the evidence around weights is lower still.

    Args:
        observed: The data, and their covariance by classes.
        prior: Σ.
        noise: σ.
        weights: θ.
        prediction: A h(θ).

    Raises:
        ValueError: the covariance is not positive definite, or not finite.
    """
    variance = noise.square()
    factor, beyond = observed.factorised(prior, variance)
    log_det = 2 * factor.diagonal().log().sum() + (observed.size - len(factor)) * beyond.log()
    if weights is None:
        within, outside = observed.inside(observed.data - observed.prediction + observed.weight_part)
        white = torch.linalg.solve_triangular(factor, within.unsqueeze(1), upper=False)
        misfit = white.square().sum() + outside / beyond
    else:
        assert prediction is not None
        misfit = (observed.data - prediction).square().sum() / variance + prior.penalty(weights)
    return -0.5 * (misfit + log_det + observed.size * math.log(2 * math.pi))


def tune_filters(
    evidence: Callable[[FilterPrior, Tensor], Tensor],
    prior: FilterPrior,
    noise: float,
    fixed_noise: bool,
    hyper_prior: HyperPrior | None = None,
    max_evaluations: int = 300,
) -> Tuned:
    """Maximise the evidence over the logarithms of all variances, length-scales and, if unknown, the noise.

    By L-BFGS within wide bounds, from the values of ``prior`` and ``noise``.

    Args:
        evidence: Function from prior and noise to log p(y).
        prior: Initial prior.
        noise: Initial σ.
        fixed_noise: True to keep σ.
        hyper_prior: −log p of the prior's values, which is added to the objective.
        max_evaluations: Largest number of evaluations.

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
        raise ValueError("the evidence is not finite at the initial values: check the data, the noise and the network.")
    from scipy.optimize import minimize

    found = minimize(
        objective, start.numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxfun": max_evaluations}
    )
    if found.nfev >= max_evaluations:
        warnings.warn(
            f"the evidence was still rising after {found.nfev} evaluations: raise max_evaluations.",
            stacklevel=2,
        )
    best, level = read(torch.tensor(found.x))
    value = evidence(best, level)
    distance = best.variance.log()[:, None] - torch.tensor(VARIANCES, dtype=torch.double)
    at_ends = int(distance.abs().min(1).values.lt(1e-6).sum())
    return Tuned(best, noise if fixed_noise else float(level), float(value), int(found.nfev), at_ends)


@dataclass(frozen=True)
class PredCP:
    r"""p(δ_b) ∝ Exp(κ_b; λ) |∂κ_b/∂δ_b| over one hyperparameter of each block. [antoran2023dip; nalisnick2021]

    .. math:: \kappa_b = \mathbb{E}\, \mathrm{TV}\big(f(\hat\theta) + J_b \theta_b\big), \qquad
              \theta_b \sim N(0, \Sigma_b)

    δ_b is log ℓ_b, or log v_b for 1 × 1 filters. (Given v_b, the integral over log ℓ_b depends on v_b, as the range of
    κ_b does. As in the document this normaliser is omitted, so that filters of several entries have a joint penalty of
    v and ℓ, not a density.)

    Total variation is a sum of absolute values of Gaussian variables,

    .. math:: \mathbb{E}\lvert N(m, s^2)\rvert = s\sqrt{2/\pi}\, e^{-m^2/2s^2} + m\, \mathrm{erf}(m/s\sqrt2), \qquad
              s_{bi}^2 = \sum_\delta v_b e^{-\delta/\ell_b}\, t_{b\delta i}

    so that κ, and by differentiation its Jacobian, are closed forms of the hyperparameters: no image is drawn, and the
    network is not needed once t is known.

    Attributes:
        means: m, differences of f(θ̂).
        spreads: t of each block.
        shares: Number of differences that each one represents.
        weight: λ, in nats per unit of total variation.
    """

    means: Float[Tensor, " T"]
    spreads: list[Float[Tensor, "_ T"]]
    shares: Float[Tensor, " T"]
    weight: float

    @classmethod
    def of(
        cls,
        linearised: LinearisedImage,
        prior: FilterPrior,
        weight: float,
        count: int = DIFFERENCES,
        progress: bool = False,
    ) -> "PredCP":
        """Pull differences between neighbours back through the network.

        Args:
            linearised: h.
            prior: Prior that defines which weights form filters.
            weight: λ.
            count: Largest number of differences; of more, a sample represents all, drawn in proportion to size (each
                divided by its probability).
            progress: Show a progress bar.

        Cost: a backward pass for each difference.
        """
        operator = differences(linearised.image.shape)
        means = operator(linearised.image).double().cpu()
        chosen, shares = _representatives(means.abs(), count)
        units = torch.zeros(len(chosen), operator.measurements).to(linearised.image)
        units[torch.arange(len(chosen)), chosen] = 1
        rows = linearised.rows(operator.adjoint(units), "total variation: Jacobian", progress)
        return cls(means[chosen], [spread.cpu() for spread in class_diagonals(prior, rows)], shares, weight)

    def expected_variation(self, prior: FilterPrior) -> Float[Tensor, " B"]:
        """κ of each block."""
        found = []
        for weights, spread in zip(prior.class_weights(), self.spreads, strict=True):
            deviation = (weights @ spread).clamp(min=1e-30).sqrt()
            ratio = self.means / deviation
            hump = math.sqrt(2 / math.pi) * deviation * torch.exp(-0.5 * ratio.square())
            found.append(self.shares @ (hump + self.means * torch.erf(ratio / math.sqrt(2))))
        return torch.stack(found)

    def __call__(self, prior: FilterPrior) -> Float[Tensor, ""]:
        """−log p of the hyperparameters; differentiable."""
        variance, lengthscale = prior.variance.log(), prior.lengthscale.log()
        for values in (variance, lengthscale):
            if not values.requires_grad:
                values.requires_grad_()
        kappa = self.expected_variation(prior.replace(variance.exp(), lengthscale.exp()))
        by_variance, by_lengthscale = torch.autograd.grad(kappa.sum(), [variance, lengthscale], create_graph=True)
        correlated = torch.zeros(len(kappa), dtype=torch.bool)
        correlated[prior.correlated] = True
        slope = torch.where(correlated, by_lengthscale, by_variance).abs().clamp(min=1e-12)
        return (self.weight * kappa - slope.log() - math.log(self.weight)).sum()


def _representatives(sizes: Float[Tensor, " N"], count: int) -> tuple[Int[Tensor, " T"], Float[Tensor, " T"]]:
    """Indices of a sample of differences, and the number of differences that each represents.

    Half are drawn in proportion to the size of a difference and half uniformly, in equal strata: κ is a sum of |m| at
    edges of the image, and of s elsewhere.
    """
    if len(sizes) <= count:
        return torch.arange(len(sizes)), torch.ones_like(sizes)
    likely = sizes + sizes.mean().clamp(min=1e-12)
    likely = count * likely / likely.sum()
    places = torch.arange(count) + torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    chosen = torch.searchsorted(likely.cumsum(0), places).clamp(max=len(sizes) - 1)
    chosen, times = chosen.unique_consecutive(return_counts=True)
    return chosen, times / likely[chosen]
