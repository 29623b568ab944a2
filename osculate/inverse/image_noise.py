"""The noise of the data carried back into the image: the part of error bars that no model determines."""

import torch

from osculate.inverse.operators import LinearOperator

#: Default number of singular values of the operator by which noise is propagated to the image.
SINGULAR = 100
#: Largest number of measurements or pixels for which they are those of a dense matrix.
DENSE = 500
#: Variance of pixels that are 0 or 1 at random.
LARGEST_VARIANCE = 0.25


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
    if min(operator.measurements, operator.pixels) <= DENSE:
        values = torch.linalg.svdvals(operator.matrix())[:vectors]
    else:
        from scipy.sparse.linalg import svds

        found = svds(operator.as_scipy(), k=vectors, return_singular_vectors=False, random_state=0)
        values = torch.from_numpy(found.copy())
    values = values[values > 1e-6 * values.max()]
    return float(((noise / values).square().clamp(max=LARGEST_VARIANCE).sum() / operator.pixels).sqrt())
