"""Factorisations of positive (semi-)definite matrices, in double precision, with errors instead of NaN."""

import warnings

import torch
from jaxtyping import Float
from torch import Tensor


def cholesky(matrix: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B n n"]:
    """The lower Cholesky factor in double precision.

    A matrix that is indefinite by rounding gets a jitter of at most 1e-6 of its mean diagonal, with a warning that
    gives its size.

    Raises:
        ValueError: the matrix with the largest jitter is not positive definite, or not finite.
    """
    matrix = matrix.double()
    if not bool(matrix.isfinite().all()):
        raise ValueError("a matrix to be factorised holds NaN or infinity: the curvature or the prior overflowed.")
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not bool(info.any()):
        return factor
    size = matrix.detach().diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for relative in (1e-12, 1e-10, 1e-8, 1e-6):
        factor, info = torch.linalg.cholesky_ex(matrix + relative * size * eye)
        if not bool(info.any()):
            warnings.warn(
                f"a matrix was not positive definite; {relative:.0e} of its diagonal was added.", stacklevel=2
            )
            return factor
    raise ValueError(
        "a precision matrix is not positive definite even with 1e-6 of its diagonal added. "
        "Use a larger prior precision, or a float64 model."
    )


def eigh(matrix: Float[Tensor, "*B n n"]) -> tuple[Float[Tensor, "*B n"], Float[Tensor, "*B n n"]]:
    """Eigenvalues (clamped at zero) and eigenvectors, computed in double precision, in the type of the matrix.

    Raises:
        ValueError: the matrix is not finite.
    """
    if not bool(matrix.isfinite().all()):
        raise ValueError("a curvature factor holds NaN or infinity: the curvature overflowed.")
    values, vectors = torch.linalg.eigh(matrix.double())
    return values.clamp(min=0).to(matrix.dtype), vectors.to(matrix.dtype)


def root(covariance: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B n n"]:
    """L with L Lᵀ = covariance, for matrices that may be singular.

    By Cholesky, or by the symmetric eigenvalue root where a pivot is within rounding of zero. The choice is made for
    each matrix separately, so that its root does not depend on the others in the batch.
    """
    # a pivot has an error of eps times the condition number of the leading block: 200 in single precision
    rounding = torch.finfo(covariance.dtype).eps ** (2 / 3)
    factor, info = torch.linalg.cholesky_ex(covariance)
    pivots = factor.detach().diagonal(dim1=-2, dim2=-1).square()
    largest = covariance.detach().diagonal(dim1=-2, dim2=-1).amax(-1)
    singular = (info != 0) | ~(pivots.amin(-1) > rounding * largest)  # NaN counts as singular, and is an error of eigh
    if not bool(singular.any()):
        return factor
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    factor = torch.linalg.cholesky(torch.where(singular[..., None, None], eye, covariance))
    values, vectors = eigh(covariance[singular])
    symmetric = (vectors * values.sqrt().unsqueeze(-2)) @ vectors.mT  # continuous, unlike the eigenvectors
    return factor.masked_scatter(singular[..., None, None], symmetric)
