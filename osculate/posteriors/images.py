"""Distributions of whole images: Gaussian with a covariance, known by draws, and with independent pixels."""

from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal, Normal, constraints

from osculate.checks import require_whole
from osculate.linalg import cholesky

#: Shape of several draws.
Shape: TypeAlias = torch.Size | list[int] | tuple[int, ...]
#: Factor by which sample covariances between pixels are shrunk.
SHRUNK = 0.5


class ImageDistribution(Distribution):
    """A distribution of images (H, W): one event is a whole image.

    Args:
        mean: (H, W).
    """

    arg_constraints: dict = {}
    support = constraints.independent(constraints.real, 2)

    def __init__(self, mean: Float[Tensor, "H W"]) -> None:
        self._mean = mean.double()
        super().__init__(event_shape=mean.shape, validate_args=False)

    @property
    def mean(self) -> Float[Tensor, "H W"]:
        """The reconstruction."""
        return self._mean

    def covariance_of(self, pixels: Tensor) -> Float[Tensor, "n n"]:
        """The covariance of some pixels, by their indices in the flat image."""
        raise NotImplementedError

    def times(self, factor: float) -> "ImageDistribution":
        """The same in other units: mean and deviations times a positive factor."""
        raise NotImplementedError

    def patch_log_prob(self, image: Tensor, size: int = 1) -> Float[Tensor, ""]:
        r"""Σ log density of adjacent square patches, treated as independent; of each pixel for size 1.

        Args:
            image: (H, W).
            size: Side of a patch in pixels; patches at the border are smaller.
        """
        self._require(image)
        if image.ndim > 2:
            raise ValueError(f"patch_log_prob needs one image (H, W), got shape {tuple(image.shape)}.")
        require_whole("the side of a patch", size)
        if size == 1:
            return Normal(self._mean, self.stddev).log_prob(image.to(self._mean)).sum()
        height, width = self._mean.shape
        index = torch.arange(height * width).reshape(height, width)
        error, total = (image.to(self._mean) - self._mean).reshape(-1), self._mean.new_zeros(())
        for patch in (part.reshape(-1) for row in index.split(size, 0) for part in row.split(size, 1)):
            covariance = self.covariance_of(patch)
            factor = cholesky(covariance)
            total = total + MultivariateNormal(error.new_zeros(len(patch)), scale_tril=factor).log_prob(error[patch])
        return total

    def _require(self, image: Tensor) -> None:
        if not isinstance(image, Tensor):
            raise ValueError(f"an image must be a tensor, got {type(image).__name__}: pass torch.as_tensor(image).")
        if image.shape[-2:] != self._mean.shape:
            raise ValueError(f"an image must have shape {tuple(self._mean.shape)}, got {tuple(image.shape)}.")


class GaussianImage(ImageDistribution):
    """N(mean, covariance) over the pixels of an image.

    Args:
        mean: (H, W).
        covariance: (H·W, H·W), of the pixels row by row.

    Raises:
        ValueError: the covariance is of another shape, or not positive definite.
    """

    def __init__(self, mean: Float[Tensor, "H W"], covariance: Float[Tensor, "D D"]) -> None:
        if covariance.shape != (mean.numel(), mean.numel()):
            raise ValueError(
                f"the covariance must have one row and column per pixel, {mean.numel()}, got {tuple(covariance.shape)}."
            )
        super().__init__(mean)
        self.covariance_matrix = covariance.double()
        self._factor = cholesky(self.covariance_matrix)

    def times(self, factor: float) -> "GaussianImage":
        """The same in other units."""
        return GaussianImage(factor * self._mean, factor**2 * self.covariance_matrix)

    @property
    def variance(self) -> Float[Tensor, "H W"]:
        """The variance of each pixel."""
        return self.covariance_matrix.diagonal().reshape(self._mean.shape)

    def covariance_of(self, pixels: Tensor) -> Float[Tensor, "n n"]:
        """The covariance of some pixels, by their indices in the flat image."""
        return self.covariance_matrix[pixels][:, pixels]

    def rsample(self, sample_shape: Shape = ()) -> Float[Tensor, "*S H W"]:
        """Draws of whole images, with correlated errors."""
        return self._joint().rsample(torch.Size(sample_shape)).reshape(*sample_shape, *self._mean.shape)

    def log_prob(self, value: Float[Tensor, "*S H W"]) -> Float[Tensor, "*S"]:
        """The joint log density of all pixels, in nats."""
        self._require(value)
        return self._joint().log_prob(value.to(self._mean).flatten(-2))

    def _joint(self) -> MultivariateNormal:
        return MultivariateNormal(self._mean.reshape(-1), scale_tril=self._factor, validate_args=False)


class DrawnImage(ImageDistribution):
    """A distribution known by draws, with independent noise in every pixel on top.

    Args:
        mean: (H, W), around which the spread of the draws is measured.
        draws: (S, H, W).
        noise: Standard deviation of the noise.
    """

    def __init__(self, mean: Float[Tensor, "H W"], draws: Float[Tensor, "S H W"], noise: float = 0.0) -> None:
        super().__init__(mean)
        self.draws, self.noise = draws.double(), noise

    def times(self, factor: float) -> "DrawnImage":
        """The same in other units."""
        return DrawnImage(factor * self._mean, factor * self.draws, factor * self.noise)

    @property
    def variance(self) -> Float[Tensor, "H W"]:
        """The variance of each pixel, with a relative error of √(2/S)."""
        return (self.draws - self._mean).square().mean(0) + self.noise**2

    def covariance_of(self, pixels: Tensor) -> Float[Tensor, "n n"]:
        """The covariance of some pixels; off-diagonal entries are halved, so that few draws suffice."""
        deviations = (self.draws - self._mean).flatten(1)[:, pixels]
        raw = deviations.T @ deviations / len(self.draws)
        own = raw.diagonal().diag_embed()
        return SHRUNK * raw + (1 - SHRUNK) * own + self.noise**2 * torch.eye(len(pixels)).to(raw)

    def log_prob(self, value: Float[Tensor, "*S H W"]) -> Float[Tensor, "*S"]:
        """Raise an error: draws do not determine the density of a whole image.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "a distribution known by draws has no density of whole images: use patch_log_prob(image, size), or "
            "ErrorBars(posterior='exact')."
        )

    def rsample(self, sample_shape: Shape = ()) -> Float[Tensor, "*S H W"]:
        """A random selection of the draws, with noise; without repetition if there are enough."""
        shape = torch.Size(sample_shape)
        count = shape.numel()
        size = len(self.draws)
        indices = torch.randperm(size)[:count] if count <= size else torch.randint(size, (count,))
        chosen = self.draws[indices].reshape(*shape, *self._mean.shape)
        return chosen + self.noise * torch.randn(chosen.shape).to(chosen)


class IndependentImage(ImageDistribution):
    """Pixels that are Gaussian and independent of one another.

    Args:
        mean: (H, W).
        variance: (H, W).
    """

    def __init__(self, mean: Float[Tensor, "H W"], variance: Float[Tensor, "H W"]) -> None:
        super().__init__(mean)
        self._variance = variance.double()

    def times(self, factor: float) -> "IndependentImage":
        """The same in other units."""
        return IndependentImage(factor * self._mean, factor**2 * self._variance)

    @property
    def variance(self) -> Float[Tensor, "H W"]:
        """The variance of each pixel."""
        return self._variance

    def covariance_of(self, pixels: Tensor) -> Float[Tensor, "n n"]:
        """A diagonal matrix."""
        return self._variance.reshape(-1)[pixels].diag_embed()

    def rsample(self, sample_shape: Shape = ()) -> Float[Tensor, "*S H W"]:
        """Noise around the mean."""
        noise = torch.randn(*sample_shape, *self._mean.shape).to(self._mean)
        return self._mean + self._variance.sqrt() * noise

    def log_prob(self, value: Float[Tensor, "*S H W"]) -> Float[Tensor, "*S"]:
        """The joint log density of all pixels, in nats."""
        self._require(value)
        return Normal(self._mean, self._variance.sqrt()).log_prob(value.to(self._mean)).sum((-2, -1))
