"""Differences between neighbouring pixels, and their sum: total variation."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor

from osculate.inverse.operators import Matrix
from osculate.inverse.operators._base import require_image_shape


def differences(image_shape: Sequence[int]) -> Matrix:
    """D, the H·(W − 1) + (H − 1)·W differences between neighbours, as an operator.

    >>> differences((2, 2))(torch.tensor([[1.0, 2.0], [5.0, 9.0]]))
    tensor([1., 4., 4., 7.])
    """
    from scipy.sparse import csr_array

    height, width = require_image_shape(image_shape)
    pixel = np.arange(height * width).reshape(height, width)
    before = np.concatenate([pixel[:, :-1].ravel(), pixel[:-1].ravel()])
    after = np.concatenate([pixel[:, 1:].ravel(), pixel[1:].ravel()])
    if not len(before):
        raise ValueError("an image of a single pixel has no neighbours.")
    row, one = np.arange(len(before)), np.ones(len(before))
    places = (np.concatenate([row, row]), np.concatenate([after, before]))
    return Matrix(csr_array((np.concatenate([one, -one]), places), (len(row), pixel.size)), (height, width))


def total_variation(image: Float[Tensor, "*S H W"]) -> Float[Tensor, "*S"]:
    r"""Anisotropic total variation, TV(x) = ‖D x‖₁.

    >>> total_variation(torch.tensor([[1.0, 2.0], [5.0, 9.0]]))
    tensor(16.)
    """
    return image.diff(dim=-1).abs().sum((-2, -1)) + image.diff(dim=-2).abs().sum((-2, -1))
