"""Low-rank eigendecomposition of a positive semi-definite matrix from one sketch."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.linalg.psd import cholesky, finite, spectrum

#: Columns of wide matrices that are converted to double precision at once.
STRIP = 2**16
#: Largest negative eigenvalue that is attributed to rounding, relative to the largest eigenvalue.
NOISE = 1e-3


def _strips(n: int) -> Iterator[slice]:
    yield from (slice(start, start + STRIP) for start in range(0, n, STRIP))


def inner(a: Float[Tensor, "j n"], b: Float[Tensor, "k n"]) -> Float[Tensor, "j k"]:
    """a bᵀ in double precision, without a full copy of either."""
    parts = [a[:, part].double() @ b[:, part].double().T for part in _strips(a.shape[-1])]
    return torch.stack(parts).sum(0)


def combine(weights: Float[Tensor, "j k"], rows: Float[Tensor, "k n"]) -> Float[Tensor, "j n"]:
    """Combinations of rows with double-precision weights, rounded once to the type of the rows."""
    result = rows.new_empty(len(weights), rows.shape[-1])
    for part in _strips(rows.shape[-1]):
        result[:, part] = (weights @ rows[:, part].double()).to(rows.dtype)
    return result


def nystrom(
    tests: Float[Tensor, "k n"], sketch: Float[Tensor, "k n"], rank: int
) -> tuple[Float[Tensor, " r"], Float[Tensor, "r n"]]:
    r"""Eigenvalues and eigenvectors of G ⪰ 0 from products Y = G Ω with fixed test vectors Ω.

    .. math:: \hat G = Y (\Omega^\top Y)^{-1} Y^\top

    Y is linear in G, so that sketches of parts of the data add. Ĝ ⪯ G, with equality where the rank of G is at most k.
    For stability it is computed for G + ν I and ν is subtracted from the eigenvalues, with ν the rounding noise of ΩᵀY:
    ten times its most negative eigenvalue, or ten units of rounding. [tropp2017, algorithm 3]

    Args:
        tests: Ω, one test vector per row, linearly independent.
        sketch: Y, one product per row.
        rank: Number of the largest eigenvalues that are kept.

    Returns:
        At most ``rank`` eigenvalues in double precision, positive and in descending order, and their vectors as rows.

    Raises:
        ValueError: the matrix is not positive semi-definite.

    Cost: about 4 k² n operations, and memory for another 2k vectors.

    >>> values, vectors = nystrom(torch.eye(4), torch.diag(torch.tensor([0.0, 3.0, 0.0, 5.0])), rank=2)
    >>> values
    tensor([5.0000, 3.0000], dtype=torch.float64)
    """
    basis = cholesky(inner(tests, tests))  # basis⁻¹ Ω has orthonormal rows
    core = torch.linalg.solve_triangular(basis, inner(tests, sketch), upper=False)
    core = torch.linalg.solve_triangular(basis, core.T, upper=False)
    core = 0.5 * (core + core.T)
    eigenvalues = torch.linalg.eigvalsh(finite(core))
    largest, negative = float(eigenvalues.abs().max()), max(0.0, -float(eigenvalues.min()))
    if negative > NOISE * largest:
        raise ValueError(
            f"a sketch has eigenvalues from {-negative:.1e} to {float(eigenvalues.max()):.1e}: the matrix is not "
            "positive semi-definite and has no low-rank approximation of this kind. Use curvature='ggn' or 'fisher'."
        )
    shift = 10 * max(torch.finfo(sketch.dtype).eps * largest, negative)
    if largest == 0:
        return core.new_zeros(0), sketch.new_zeros(0, sketch.shape[-1])
    factor = basis @ cholesky(core + shift * torch.eye(len(core)).to(core))
    root = sketch.new_empty(sketch.shape)  # its rows are a root of Ĝ + ν I on the span of Y
    for part in _strips(sketch.shape[-1]):
        shifted = sketch[:, part].double() + shift * tests[:, part].double()
        root[:, part] = torch.linalg.solve_triangular(factor, shifted, upper=False).to(root.dtype)
    values, vectors = spectrum(inner(root, root))
    kept = (values > 2 * shift).nonzero().squeeze(-1).flip(0)[:rank]
    return values[kept] - shift, combine(vectors[:, kept].T / values[kept].sqrt().unsqueeze(-1), root)
