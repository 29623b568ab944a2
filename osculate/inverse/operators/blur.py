"""Images out of focus."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from osculate.checks import require_positive
from osculate.inverse.operators._base import LinearOperator, require_image_shape


class Blur(LinearOperator):
    r"""Convolution with a kernel; beyond its border the image is zero.

    .. math:: (A x)_{ij} = \sum_{kl} h_{kl}\, x_{i-k,\,j-l}

    Args:
        image_shape: (H, W).
        kernel: h, (odd, odd); or the standard deviation of a Gaussian in pixels, cut off at three of them.

    Raises:
        ValueError: the kernel has an even side or is not finite, or the standard deviation is not positive.

    >>> Blur((1, 5), kernel=torch.tensor([[0.25, 0.5, 0.25]]))(torch.eye(5)[2:3])
    tensor([[0.0000, 0.2500, 0.5000, 0.2500, 0.0000]])
    """

    def __init__(self, image_shape: Sequence[int], kernel: float | Tensor | np.ndarray = 1.0) -> None:
        if isinstance(kernel, np.ndarray):
            kernel = torch.as_tensor(kernel)
        if not isinstance(kernel, Tensor):
            require_positive("the standard deviation of a blur", kernel)
            reach, most = max(1, round(3 * float(kernel))), max(require_image_shape(image_shape)) - 1
            profile = torch.exp(-0.5 * (torch.arange(-reach, reach + 1, dtype=torch.double) / float(kernel)) ** 2)
            profile = profile / profile.sum()
            kept = slice(max(0, reach - most), min(len(profile), reach + most + 1))  # pixels are at most this far apart
            kernel = torch.outer(profile[kept], profile[kept])
        if kernel.ndim != 2 or kernel.shape[0] % 2 == 0 or kernel.shape[1] % 2 == 0:
            raise ValueError(f"the kernel of a blur must have two odd sides, got shape {tuple(kernel.shape)}.")
        if not bool(kernel.isfinite().all()):
            raise ValueError("the kernel of a blur holds NaN or infinity: pass finite values.")
        super().__init__(image_shape, image_shape)
        self.kernel = kernel.detach().double()

    def apply(self, images: Float[Tensor, "S D"]) -> Float[Tensor, "S M"]:
        """A x for images as flat rows."""
        return self._convolve(images, self.kernel.flip(0, 1))

    def transpose(self, data: Float[Tensor, "S M"]) -> Float[Tensor, "S D"]:
        """Aᵀ y for data as flat rows."""
        return self._convolve(data, self.kernel)

    def _convolve(self, flat: Tensor, kernel: Tensor) -> Tensor:
        padding = (kernel.shape[0] // 2, kernel.shape[1] // 2)
        image = flat.reshape(-1, 1, *self.image_shape)
        return F.conv2d(image, kernel[None, None].to(flat), padding=padding).reshape(flat.shape)
