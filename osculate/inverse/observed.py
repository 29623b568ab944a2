"""The linearised model of an image as the data see it."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.inverse.filters import FilterPrior, class_diagonals, class_grams
from osculate.inverse.linearised import LinearisedImage
from osculate.inverse.operators import LinearOperator

#: Directions in data space that the evidence works with at most, by default.
RANK = 800
#: Random directions that tell the mean variance of all beyond these.
PROBES = 32
#: Share of the noise variance below which the prior variance of the data is none.
NEGLIGIBLE = 0.001


@dataclass(frozen=True)
class Observed:
    r"""y = A h(θ) + ε, ε ~ N(0, σ² I), in an orthonormal basis Q of the part of data space that images reach.

    .. math:: \mathrm{cov}\, y = Q^\top \Big(\sum_c w_c M_c\Big) Q + \Big(\sum_c w_c t_c\Big) (I - Q^\top Q)
              + \sigma^2 I

    with the class weights w of the prior. Directions orthogonal to Q share their mean prior variance Σ w_c t_c, and are
    taken as uncorrelated. This is exact where Q spans the range of A J, always so where no more than ``rank`` numbers
    were measured, or the image has no more pixels; t is then zero. Elsewhere, up to the error of that mean, the
    determinant is not too small: neither taking correlations away nor evening variances out lowers it.

    Attributes:
        grams: M_c in the basis Q.
        rest: t, by a mean over random directions.
        basis: Q, one vector a row; None for the identity.
        data: y.
        seen: A f(θ̂).
        seen_weights: A J θ̂.
    """

    grams: Float[Tensor, "E R R"]
    rest: Float[Tensor, " E"]
    basis: Float[Tensor, "R M"] | None
    data: Float[Tensor, " M"]
    seen: Float[Tensor, " M"]
    seen_weights: Float[Tensor, " M"]

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
        """Pull the basis back through operator and network, and sort by classes of distance.

        Args:
            linearised: h.
            operator: A.
            data: y.
            prior: over the filters; its values decide which directions a basis of limited rank keeps.
            noise: σ, of which the images must see something.
            rank: largest number of directions.
            progress: show bars.

        Raises:
            ValueError: the image does not change with the filters.

        Cost: R backward passes, and R more in two directions where R < M; 2·R²·P operations for each class.
        """
        basis = data_basis(linearised, operator, prior, rank)
        rows = _pulled_back(linearised, operator, basis, "evidence: Jacobian", progress)
        grams = class_grams(prior, torch.cat(list(rows)))
        seen = operator(torch.stack([linearised.image, linearised.jvp(linearised.weights[None])[0]])).flatten(1)
        flat = data.reshape(-1).to(seen).double()
        sketched = rank < min(operator.measurements, operator.pixels)
        rest = _beyond(linearised, operator, prior, basis) if sketched else grams.new_zeros(len(grams))
        whole = len(basis) == operator.measurements
        found = cls(grams, rest, None if whole else basis.double(), flat, *seen.double())
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

    def covariance(self, weights: Float[Tensor, " E"]) -> Float[Tensor, "R R"]:
        """Σ_c w_c M_c."""
        return (weights.to(self.grams) @ self.grams.flatten(1)).reshape(self.grams.shape[1:])

    def variance_beyond(self, weights: Float[Tensor, " E"]) -> Float[Tensor, ""]:
        """Σ_c w_c t_c."""
        return weights.to(self.rest) @ self.rest

    def inside(self, vector: Float[Tensor, " M"]) -> tuple[Float[Tensor, " R"], Float[Tensor, ""]]:
        """A vector in the basis, and the squared norm of what stands orthogonal to it."""
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
    """Rows Jᵀ Aᵀ u for several u, a few at a time."""
    return linearised.rows(operator.adjoint(vectors.reshape(-1, *operator.data_shape)), title, progress)


def _beyond(
    linearised: LinearisedImage, operator: LinearOperator, prior: FilterPrior, basis: Float[Tensor, "R M"]
) -> Float[Tensor, " E"]:
    """tr((I − QᵀQ) M_c) / (M − R) by random vectors orthogonal to the basis."""
    generator = torch.Generator().manual_seed(1)
    probes = torch.randn(PROBES, operator.measurements, generator=generator, dtype=torch.double).to(basis)
    probes = probes - probes @ basis.T @ basis
    rows = _pulled_back(linearised, operator, probes, "evidence: beyond the basis", False)
    return torch.cat(class_diagonals(prior, rows)).mean(1) / (operator.measurements - len(basis))
