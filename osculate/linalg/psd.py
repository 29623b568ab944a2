"""Factorisations of positive (semi-)definite matrices, in double precision, with errors instead of NaN."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Jitter that is added to a matrix whose factorisation fails, relative to its diagonal, until it does not.
LADDER = (1e-14, 1e-12, 1e-10, 1e-8, 1e-6)


def cholesky(matrix: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B n n"]:
    """The lower Cholesky factor in double precision.

    A matrix that is indefinite by rounding gets the first jitter of :data:`LADDER` with which it is not, and a warning
    that gives its size.

    Raises:
        ValueError: the matrix with the largest jitter is not positive definite, or not finite.
    """
    factor, jitter = jittered(matrix)
    if jitter:
        warnings.warn(f"a matrix was not positive definite; {jitter:.0e} of its diagonal was added.", stacklevel=2)
    return factor


def jittered(matrix: Float[Tensor, "*B n n"]) -> tuple[Float[Tensor, "*B n n"], float]:
    """The lower Cholesky factor in double precision, and the jitter of :data:`LADDER` that it needed, or zero.

    The jitter is relative to each entry of the diagonal, so that small entries beside large ones keep their size; to
    the mean of all for an entry that is zero, and for all where that does not help. Matrices of a batch get it
    separately.

    Raises:
        ValueError: the matrix with the largest jitter is not positive definite, or not finite.
    """
    matrix = finite(matrix.double())
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not bool(info.any()):
        return factor, 0.0
    own = matrix.detach().diagonal(dim1=-2, dim2=-1).clamp(min=0)
    mean = own.mean(-1, keepdim=True).clamp(min=torch.finfo(own.dtype).tiny).expand_as(own)
    added, largest = torch.zeros_like(own), torch.zeros_like(info, dtype=own.dtype)
    for size in (torch.where(own > 0, own, mean), mean):
        for relative in LADDER:
            failed = info != 0
            added = torch.where(failed.unsqueeze(-1), relative * size, added)
            largest = largest.masked_fill(failed, relative)
            factor, info = torch.linalg.cholesky_ex(matrix + added.diag_embed())
            if not bool(info.any()):
                return factor, float(largest.max())
    raise ValueError(
        f"a matrix is not positive definite even with {LADDER[-1]:.0e} of its diagonal added. "
        "Use a larger prior precision, or a float64 model."
    )


def spectrum(matrix: Float[Tensor, "*B n n"]) -> tuple[Float[Tensor, "*B n"], Float[Tensor, "*B n n"]]:
    """Eigenvalues, ascending, and eigenvectors of a symmetric matrix, in double precision.

    Where the algorithm does not converge, the matrix gets the first multiple of I with which it does, of :data:`LADDER`
    times its mean diagonal. The eigenvalues are without it, and a warning gives its size.

    Raises:
        ValueError: the matrix is not finite, or the algorithm does not converge with the largest jitter.
    """
    matrix = finite(matrix.double())
    try:
        return torch.linalg.eigh(matrix)
    except torch.linalg.LinAlgError:
        own = matrix.detach().diagonal(dim1=-2, dim2=-1).abs()
    mean = own.mean(-1, keepdim=True).clamp(min=torch.finfo(own.dtype).tiny)
    for relative in LADDER:
        try:
            values, vectors = torch.linalg.eigh(matrix + (relative * mean).expand_as(own).diag_embed())
        except torch.linalg.LinAlgError:
            continue
        warnings.warn(
            f"an eigendecomposition did not converge; {relative:.0e} of the diagonal was added.", stacklevel=2
        )
        return values - relative * mean, vectors
    raise ValueError(
        f"an eigendecomposition does not converge even with {LADDER[-1]:.0e} of the diagonal added. "
        "Use a larger prior precision, or a float64 model."
    )


def eigh(matrix: Float[Tensor, "*B n n"]) -> tuple[Float[Tensor, "*B n"], Float[Tensor, "*B n n"]]:
    """The :func:`spectrum` of a positive semi-definite matrix, in its own type: eigenvalues are clamped at zero."""
    values, vectors = spectrum(matrix)
    return values.clamp(min=0).to(matrix.dtype), vectors.to(matrix.dtype)


def finite(matrix: Tensor) -> Tensor:
    """The same matrix.

    Raises:
        ValueError: it holds NaN or infinity.
    """
    if not bool(matrix.isfinite().all()):
        raise ValueError(
            "a matrix to be factorised holds NaN or infinity: an input does, or the curvature or the prior overflowed."
        )
    return matrix


class SpectralFunction(torch.autograd.Function):
    r"""f(A) = U f(λ) Uᵀ of a symmetric A = U λ Uᵀ, with the derivative of Daleckii and Krein.

    .. math:: d f(A) = U \big(F \circ (U^\top dA\, U)\big) U^\top, \qquad
              F_{ij} = \frac{f(\lambda_i) - f(\lambda_j)}{\lambda_i - \lambda_j}

    The eigenvectors themselves have no derivative where eigenvalues are equal; f(A) has. ``differences`` gives F.
    """

    @staticmethod
    def forward(
        ctx: Any,
        matrix: Float[Tensor, "*B n n"],
        function: Callable[[Tensor], Tensor],
        differences: Callable[[Tensor, Tensor], Tensor],
    ) -> Float[Tensor, "*B n n"]:
        values, vectors = eigh(matrix)
        ctx.save_for_backward(values, vectors)
        ctx.differences = differences
        return (vectors * function(values).unsqueeze(-2)) @ vectors.mT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        values, vectors = ctx.saved_tensors
        inner = vectors.mT @ (0.5 * (gradient + gradient.mT)) @ vectors
        weights = ctx.differences(values.unsqueeze(-1), values.unsqueeze(-2))
        return vectors @ (weights * inner) @ vectors.mT, None, None


def _difference_of_roots(one: Tensor, other: Tensor) -> Tensor:
    """(√a − √b)/(a − b), zero where both vanish: a covariance has no variance there whatever its inputs are."""
    total = one.sqrt() + other.sqrt()
    return torch.where(total > 0, 1 / total.where(total > 0, 1.0), 0.0)


def root(covariance: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B n n"]:
    """L with L Lᵀ = covariance, for matrices that may be singular.

    By Cholesky, or by the symmetric eigenvalue root where a pivot is within rounding of zero for its own entry of the
    diagonal. Each matrix of a batch is judged separately, so that its root does not depend on the others.
    """
    # a pivot has an error of eps times the condition number of the leading correlations: 200 in single precision
    rounding = torch.finfo(covariance.dtype).eps ** (2 / 3)
    factor, info = torch.linalg.cholesky_ex(covariance)
    pivots = factor.detach().diagonal(dim1=-2, dim2=-1).square()
    own = covariance.detach().diagonal(dim1=-2, dim2=-1)
    singular = (info != 0) | ~(pivots > rounding * own).all(-1)  # NaN counts as singular, and is an error of eigh
    if not bool(singular.any()):
        return factor
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    factor = torch.linalg.cholesky(torch.where(singular[..., None, None], eye, covariance))
    symmetric = SpectralFunction.apply(covariance[singular], torch.sqrt, _difference_of_roots)  # continuous
    return factor.masked_scatter(singular[..., None, None], symmetric)


def damping(gram: Float[Tensor, "k k"]) -> Float[Tensor, "k k"]:
    """Q with (I + XᵀX)^{-1/2} = I − Xᵀ Q X, from X Xᵀ."""
    return SpectralFunction.apply(gram, damped, _difference_of_damped)


def damped(values: Tensor) -> Tensor:
    """(1 − (1 + θ)^{-1/2}) / θ, stable for small θ."""
    root = (1 + values).sqrt()
    return 1 / (root * (1 + root))


def _difference_of_damped(one: Tensor, other: Tensor) -> Tensor:
    """(q(a) − q(b))/(a − b) of q = :func:`damped`: with r = √(1 + a), s = √(1 + b), q = 1/(r (1 + r))."""
    r, s = (1 + one).sqrt(), (1 + other).sqrt()
    return -(1 + r + s) / (r * (1 + r) * s * (1 + s) * (r + s))
