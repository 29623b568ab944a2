r"""Functions of a symmetric matrix from its products, by Lanczos with full reorthogonalisation.

Started at v, m products give an orthonormal basis Q of the Krylov space and a tridiagonal T = Qᵀ A Q with

.. math:: f(A) v \approx \lVert v \rVert\, Q f(T) e_1, \qquad
          v^\top f(A) v \approx \lVert v \rVert^2 \sum_j w_j f(\theta_j),

θ_j the eigenvalues of T and w_j the squared first entries of its eigenvectors: the second is Gauss quadrature, exact
for polynomials up to degree 2m − 1. [golub2009; ubaru2017]
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.linalg.cg import Product
from osculate.linalg.diagonals import Estimate, averaged
from osculate.linalg.psd import spectrum

#: A function of eigenvalues, elementwise.
Spectral = Callable[[Tensor], Tensor]


class Krylov:
    """Lanczos for several starting vectors at once, grown by one product at a time.

    Args:
        product: v (S, n) to A v.
        v: The starting vectors.

    Memory: one vector a step for each starting vector.
    """

    def __init__(self, product: Product, v: Float[Tensor, "S n"]) -> None:
        self._product = product
        self.norms = v.norm(dim=-1)
        self.basis = [v / self.norms.clamp(min=torch.finfo(v.dtype).tiny).unsqueeze(-1)]
        self._alpha: list[Tensor] = []
        self._beta: list[Tensor] = []
        self._scale = torch.zeros_like(self.norms)
        self.exhausted = self.norms == 0

    def grow(self) -> None:
        """Extend the Krylov space by one product."""
        q = self.basis[-1]
        w = self._product(q)
        alpha = (w * q).sum(-1)
        if not bool(alpha.isfinite().all()):
            raise ValueError("Lanczos met NaN or infinity: the curvature or the prior overflowed.")
        for _ in range(2):  # twice, since one pass leaves rounding errors
            for other in self.basis:
                w = w - (w * other).sum(-1, keepdim=True) * other
        beta = w.norm(dim=-1)
        self._scale = torch.maximum(self._scale, alpha.abs() + beta)
        self._alpha.append(torch.where(self.exhausted, 1.0, alpha))  # any value for a space that is complete
        self.exhausted = self.exhausted | (beta <= 10 * torch.finfo(w.dtype).eps * self._scale)
        self._beta.append(torch.where(self.exhausted, 0.0, beta))
        self.basis.append(torch.where(self.exhausted.unsqueeze(-1), 0.0, w / beta.unsqueeze(-1)))

    def ritz(self) -> tuple[Float[Tensor, "S m"], Float[Tensor, "S m m"]]:
        """Eigenvalues and eigenvectors of T, in double precision."""
        off = torch.stack(self._beta, -1).double()[:, :-1]
        tridiagonal = torch.stack(self._alpha, -1).double().diag_embed()
        return spectrum(tridiagonal + off.diag_embed(-1) + off.diag_embed(1))


@dataclass(frozen=True)
class Quadrature:
    """vᵀ f(A) v for any f.

    Attributes:
        nodes: The eigenvalues of T for each starting vector.
        weights: Weights of the nodes, which sum to ‖v‖².
        change: Relative change of the result in the last step.
    """

    nodes: Float[Tensor, "S m"]
    weights: Float[Tensor, "S m"]
    change: float

    def integrate(self, function: Spectral) -> Float[Tensor, " S"]:
        """vᵀ f(A) v for each starting vector."""
        return torch.where(self.weights > 0, self.weights * function(self.nodes), 0.0).sum(-1)


def quadrature(
    product: Product, v: Float[Tensor, "S n"], function: Spectral, tolerance: float = 1e-6, max_steps: int = 100
) -> Quadrature:
    r"""Gauss quadrature for vᵀ f(A) v, with as many products as convergence takes.

    Args:
        product: v (S, n) to A v, A symmetric.
        v: The starting vectors.
        function: f, for which the quadrature must converge.
        tolerance: Bound on the change in the last step, relative to the value (or to ‖v‖²/1000 if that is larger).
        max_steps: Products at most.

    Returns:
        Nodes and weights; a change above the tolerance is also reported by a warning.
    """
    krylov, before, change = Krylov(product, v), None, float("inf")
    for _ in range(max_steps):
        krylov.grow()
        values, vectors = krylov.ritz()
        found = Quadrature(values, vectors[:, 0].square() * krylov.norms.double().square().unsqueeze(-1), change)
        total = found.integrate(function)
        if before is not None:
            scale = total.abs() + 1e-3 * krylov.norms.double().square()
            change = float(((total - before).abs() / scale.clamp(min=torch.finfo(scale.dtype).tiny)).max())
        before = total
        if change <= tolerance or bool(krylov.exhausted.all()):
            break
    else:
        _warn("Lanczos quadrature", change, tolerance, max_steps)
    return Quadrature(found.nodes, found.weights, change)


def apply(
    product: Product, v: Float[Tensor, "S n"], function: Spectral, tolerance: float = 1e-6, max_steps: int = 100
) -> Float[Tensor, "S n"]:
    r"""f(A) v.

    Args:
        product: v (S, n) to A v, A symmetric.
        v: Several vectors.
        function: f.
        tolerance: Bound on the change in the last step, relative to ‖f(A) v‖.
        max_steps: Largest number of products; each v needs memory for as many vectors.

    Returns:
        f(A) v; a change above the tolerance is also reported by a warning.

    >>> A = torch.diag(torch.tensor([1.0, 4.0]))
    >>> apply(lambda v: v @ A, torch.ones(1, 2), torch.sqrt)
    tensor([[1.0000, 2.0000]])
    """
    krylov, before, change = Krylov(product, v), None, float("inf")
    for _ in range(max_steps):
        krylov.grow()
        values, vectors = krylov.ritz()
        coefficients = (vectors @ (function(values) * vectors[:, 0]).unsqueeze(-1)).squeeze(-1)  # f(T) e₁
        if before is not None:
            step = coefficients - torch.nn.functional.pad(before, (0, 1))
            change = float((step.norm(dim=-1) / coefficients.norm(dim=-1)).max())
        before = coefficients
        if change <= tolerance or bool(krylov.exhausted.all()):
            break
    else:
        _warn("Lanczos", change, tolerance, max_steps)
    weights = (coefficients * krylov.norms.double().unsqueeze(-1)).to(v.dtype)
    result = torch.zeros_like(v)
    for weight, q in zip(weights.unbind(-1), krylov.basis, strict=False):  # the last vector has no coefficient yet
        result += weight.unsqueeze(-1) * q
    return result


def _warn(what: str, change: float, tolerance: float, steps: int) -> None:
    warnings.warn(
        f"{what} still changed by {change:.1e} (relative) in the last of {steps} steps, not {tolerance:.1e}. "
        "Allow more steps or a larger tolerance, or use a better preconditioner.",
        stacklevel=3,
    )


def log_determinant(found: Sequence[Quadrature]) -> Estimate:
    r"""log |A| by stochastic Lanczos quadrature.

    .. math:: \log |A| = \operatorname{tr} \log A = E\, z^\top \log(A) z

    Args:
        found: Results of :func:`quadrature` with ``torch.log``, each for a chunk of Rademacher vectors.

    Returns:
        The mean over the probes, and its standard error (that of the probes; the quadrature's own error is about
        ``change``). [ubaru2017]

    Raises:
        ValueError: the matrix is not positive definite.
    """
    smallest = min(float(part.nodes.min()) for part in found)
    if not smallest > 0:
        raise ValueError(
            f"the matrix has an eigenvalue of at most {smallest:.1e}: it is not positive definite and has no log "
            "determinant. Use a larger prior precision, curvature='ggn', or a float64 model."
        )
    return averaged(torch.cat([part.integrate(torch.log) for part in found]))
