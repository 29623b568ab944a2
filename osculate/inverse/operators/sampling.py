"""Images of which only some pixels are seen."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from osculate.inverse.operators._base import LinearOperator


class Subsampling(LinearOperator):
    """The pixels that a mask shows: inpainting, subsampling, a grid of sensors.

    Args:
        mask: (H, W), True where a pixel is seen.

    Raises:
        ValueError: the mask is not boolean, or shows nothing.

    >>> Subsampling(torch.tensor([[True, False], [False, True]]))(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 4.])
    """

    def __init__(self, mask: Tensor | np.ndarray) -> None:
        if isinstance(mask, np.ndarray):
            mask = torch.as_tensor(mask)
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            raise ValueError("a mask is a tensor of True (the pixel is seen) and False.")
        if not bool(mask.any()):
            raise ValueError("a mask that shows no pixel leaves nothing to reconstruct from.")
        super().__init__(tuple(mask.shape), (int(mask.sum()),))
        self.mask = mask.detach().clone()

    @classmethod
    def random(
        cls, image_shape: Sequence[int], keep: float = 0.5, generator: torch.Generator | None = None
    ) -> "Subsampling":
        """Each pixel is seen or not, by chance.

        Args:
            image_shape: (H, W).
            keep: The share of pixels that is seen.
            generator: Source of random numbers.

        Raises:
            ValueError: the share is not above 0 and at most 1.
        """
        if not 0 < keep <= 1:
            raise ValueError(f"keep is the share of pixels that is seen, above 0 and at most 1, not {keep}.")
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
