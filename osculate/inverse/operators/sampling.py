"""Images of which only some pixels are measured."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from osculate.inverse.operators._base import LinearOperator


class Subsampling(LinearOperator):
    """The pixels in a mask: inpainting, subsampling, a grid of sensors.

    Args:
        mask: (H, W), True where a pixel is measured.

    Raises:
        ValueError: the mask is not boolean, or False everywhere.

    >>> Subsampling(torch.tensor([[True, False], [False, True]]))(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 4.])
    """

    def __init__(self, mask: Tensor | np.ndarray) -> None:
        if isinstance(mask, np.ndarray):
            mask = torch.as_tensor(mask)
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            raise ValueError("mask must be boolean: True where a pixel is measured, else False.")
        if not bool(mask.any()):
            raise ValueError("mask must be True for at least one pixel.")
        super().__init__(tuple(mask.shape), (int(mask.sum()),))
        self.mask = mask.detach().clone()

    @classmethod
    def random(
        cls, image_shape: Sequence[int], keep: float = 0.5, generator: torch.Generator | None = None
    ) -> "Subsampling":
        """A random mask.

        Args:
            image_shape: (H, W).
            keep: Share of pixels that are measured.
            generator: Source of random numbers.

        Raises:
            ValueError: the share is not above 0 and at most 1.
        """
        if not 0 < keep <= 1:
            raise ValueError(f"keep, the share of measured pixels, must be above 0 and at most 1, got {keep}.")
        order = torch.rand(image_shape[0] * image_shape[1], generator=generator).argsort()
        mask = torch.zeros(len(order), dtype=torch.bool)
        mask[order[: max(1, round(keep * len(order)))]] = True
        return cls(mask.reshape(image_shape[0], image_shape[1]))

    def apply(self, images: Float[Tensor, "S D"]) -> Float[Tensor, "S M"]:
        """A x for images as flat rows."""
        return images[:, self.mask.reshape(-1).to(images.device)]

    def transpose(self, data: Float[Tensor, "S M"]) -> Float[Tensor, "S D"]:
        """Aᵀ y for data as flat rows."""
        images = data.new_zeros(len(data), self.pixels)
        images[:, self.mask.reshape(-1).to(data.device)] = data
        return images
