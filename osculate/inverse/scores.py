"""Scores of an image and its error bars against the true image."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Normal

from osculate.metrics import coverage
from osculate.posteriors.images import ImageDistribution

#: Levels of central intervals.
LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 20)) + (0.99,)
#: Number of groups of pixels with similar error bars.
GROUPS = 20


def psnr(image: Float[Tensor, "H W"], truth: Float[Tensor, "H W"]) -> float:
    """Peak signal-to-noise ratio in decibels, with the range of the truth as the peak; −∞ for a constant truth.

    >>> psnr(torch.tensor([[0.1, 1.0]]), torch.tensor([[0.0, 1.0]]))
    23.01...
    """
    error = (image.double() - truth.double()).square().mean().clamp(min=1e-24)
    return float(10 * torch.log10((truth.max() - truth.min()).double().square() / error))


def covered(posterior: ImageDistribution, truth: Float[Tensor, "H W"], levels: Sequence[float] = LEVELS) -> list[float]:
    """The share of pixels within their central intervals, for each level."""
    cdf = Normal(posterior.mean, posterior.stddev).cdf(truth.to(posterior.mean)).reshape(1, -1)
    return [coverage(cdf, level) for level in levels]


def error_correlation(posterior: ImageDistribution, truth: Float[Tensor, "H W"]) -> float:
    """Correlation of error bar and absolute error over the pixels; 0 if all error bars are equal."""
    error = (posterior.mean - truth.to(posterior.mean)).abs().reshape(-1)
    deviation = posterior.stddev.reshape(-1)
    if bool(deviation.max() - deviation.min() <= 1e-9 * deviation.max()):
        return 0.0
    return float(torch.corrcoef(torch.stack([error, deviation]))[0, 1].nan_to_num())


def grouped(error: Tensor, deviation: Tensor, groups: int = GROUPS) -> tuple[list[float], list[float]]:
    """Root mean squares of error bars and of errors, in groups of pixels with similar error bars, ascending."""
    order = deviation.reshape(-1).argsort()
    found = [
        [float(values.reshape(-1)[part].square().mean().sqrt()) for part in order.tensor_split(groups) if len(part)]
        for values in (deviation, error)
    ]
    return found[0], found[1]
