"""The linearised model of an image as the data see it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.inverse.classes import class_grams
from osculate.inverse.filters import FilterPrior
from osculate.inverse.linearised import LinearisedImage
from osculate.inverse.operators import LinearOperator
from osculate.linalg import nystrom

#: Directions in data space that the evidence works with at most, by default.
RANK = 800
#: Eigenvalues of the prior covariance of the data below this share of the noise variance are noise to the evidence.
NEGLIGIBLE = 0.001


@dataclass(frozen=True)
class Observed:
    r"""y = A h(θ) + ε, ε ~ N(0, σ² I), in an orthonormal basis Q of the part of data space that images reach.

    .. math:: \mathrm{cov}\, y = Q^\top \Big(\sum_c w_c M_c\Big) Q + \sigma^2 I

    with the class weights w of the prior. What stands orthogonal to Q is noise alone. This is exact where Q spans the
    range of A J, always so where no more than ``rank`` numbers were measured, or the image has no more pixels.

    Attributes:
        grams: M_c in the basis Q.
        basis: Q, one vector a row; None for the identity.
        size: M, the length of y.
        data: y.
        image: A f(θ̂).
        weights: A J θ̂.
    """

    grams: Float[Tensor, "E R R"]
    basis: Float[Tensor, "R M"] | None
    size: int
    data: Float[Tensor, " M"]
    image: Float[Tensor, " M"]
    weights: Float[Tensor, " M"]

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
            noise: σ, likewise.
            rank: largest number of directions.
            progress: show bars.

        Cost: R backward passes, and R more in two directions where R < M; 2·R²·P operations for each class.
        """
        basis = data_basis(linearised, operator, prior, noise, rank)
        images = operator.adjoint(
            (_eye(operator, linearised.image) if basis is None else basis).reshape(-1, *operator.data_shape)
        )
        rows = torch.cat(list(linearised.rows(images, "evidence: Jacobian", progress)))
        seen = operator(torch.stack([linearised.image, linearised.jvp(linearised.weights[None])[0]])).flatten(1)
        flat = data.reshape(-1).to(seen).double()
        return cls(class_grams(prior, rows), _double(basis), len(flat), flat, seen[0].double(), seen[1].double())

    def covariance(self, weights: Float[Tensor, " E"]) -> Float[Tensor, "R R"]:
        """Σ_c w_c M_c."""
        return (weights.to(self.grams) @ self.grams.flatten(1)).reshape(self.grams.shape[1:])

    def inside(self, vector: Float[Tensor, " M"]) -> tuple[Float[Tensor, " R"], Float[Tensor, ""]]:
        """A vector in the basis, and the squared norm of what stands orthogonal to it."""
        if self.basis is None:
            return vector, vector.new_zeros(())
        within = self.basis @ vector
        return within, (vector.square().sum() - within.square().sum()).clamp(min=0)


def data_basis(
    linearised: LinearisedImage, operator: LinearOperator, prior: FilterPrior, noise: float, rank: int
) -> Float[Tensor, "R M"] | None:
    """Q: the identity (None), a basis of the range of A, or the leading eigenvectors of A J Σ Jᵀ Aᵀ by one sketch."""
    if operator.measurements <= min(rank, operator.pixels):
        return None
    like = linearised.image
    if operator.pixels <= rank:
        left, values, _ = torch.linalg.svd(operator.matrix(), full_matrices=False)
        return left[:, values > 1e-10 * values[0]].T.to(like)
    generator = torch.Generator().manual_seed(0)
    tests = torch.randn(rank, operator.measurements, generator=generator, dtype=torch.double).to(like)
    values, vectors = nystrom(tests, prior_product(linearised, operator, prior, tests), rank)
    if not bool((kept := values > NEGLIGIBLE * noise**2).any()):
        raise ValueError(
            "the network's image does not change with its filters by as much as the noise: it is black, or saturated "
            "at its largest value. Check scale and noise, or train for more steps."
        )
    return vectors[kept]


def prior_product(
    linearised: LinearisedImage, operator: LinearOperator, prior: FilterPrior, data: Float[Tensor, "S M"]
) -> Float[Tensor, "S M"]:
    """A J Σ Jᵀ Aᵀ u for several u; two passes through the network each, and nothing of size M × M."""
    pulled = linearised.vjp(operator.adjoint(data.reshape(-1, *operator.data_shape)))
    return operator(linearised.jvp(prior.covariance_product(pulled))).flatten(1)


def _eye(operator: LinearOperator, like: Tensor) -> Float[Tensor, "M M"]:
    return torch.eye(operator.measurements, dtype=like.dtype, device=like.device)


def _double(basis: Tensor | None) -> Tensor | None:
    return None if basis is None else basis.double()
