"""Reconstruction of an image with error bars from measurements."""

import warnings
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.parameter import is_lazy

from osculate.checks import require_object, require_positive, require_whole
from osculate.inverse.dip import DeepImagePrior, FittedImage
from osculate.inverse.image_noise import image_noise
from osculate.inverse.image_posterior import RANK, LinearisedImage
from osculate.inverse.operators import LinearOperator
from osculate.inverse.operators._base import require_data
from osculate.posteriors import Gaussian
from osculate.posteriors.images import ImageDistribution
from osculate.priors import Filters, filters_of
from osculate.progress import Clock
from osculate.registry import choose

#: Where the evidence is taken, and the name of that mode; "none" keeps the initial prior.
OBJECTIVES = {"map": "network", "linear": "linear", "none": ""}
POSTERIORS = ("auto", "exact", "drawn")
#: Largest number of pixels for which the covariance of the whole image is formed by default.
EXACT = 2048
#: Smallest mean squared residual, in variances of the noise, of a network that counts as not fitted.
UNFITTED = 2.0
#: The same if the noise is unknown, as a share of the mean square of the data.
UNEXPLAINED = 0.1
#: Mean squared residual, in variances of the noise, below which the noise counts as too large or as fitted.
OVERFITTED = 0.1
#: Noise in an image with values in [0, 1] above which a warning is issued, if it is most of the error bars.
HIGH_FLOOR = 0.1


@dataclass(frozen=True)
class ErrorBars:
    """Settings for tuning the linearised model and computing its posterior.

    Args:
        objective: "map" (the evidence around the network's own weights), "linear" (at the mode of the linear model: the
            exact evidence), or "none".
        predcp: True to use a prior over the hyperparameters that favours images of low total variation, with the weight
            of the deep image prior's penalty.
        posterior: "exact" (the covariance of all pixels), "drawn" (samples by conjugate gradients), or "auto": exact
            for images of at most 2,048 pixels.
        samples: Number of draws of a drawn posterior.
        rank: Largest number of directions in data space that the evidence uses.
        start: Initial prior over the filters; by default precision 1 and a length-scale of 0.1 pixels.

    Raises:
        ValueError: an unknown objective or posterior, a number that is not positive, or predcp without an objective.
    """

    objective: str = "map"
    predcp: bool = False
    posterior: str = "auto"
    samples: int = 64
    rank: int = RANK
    start: Filters | None = None

    def __post_init__(self) -> None:
        choose("objective", self.objective, OBJECTIVES)
        choose("posterior", self.posterior, POSTERIORS)
        if self.objective == "none" and self.predcp:
            raise ValueError("predcp is a prior for the tuning, and objective='none' tunes nothing: leave one out.")
        require_whole("samples", self.samples, 2)
        require_whole("rank", self.rank)


@dataclass(frozen=True)
class ImageReconstruction:
    """A reconstructed image with its posterior.

    Attributes:
        posterior: Posterior of the image; its mean is the reconstruction.
        fitted: The deep image prior, whose image has values in [0, 1] whatever the scale.
        weights: Posterior over the filters, with prior and noise, for the data divided by the scale.
        noise: σ of the data, given or estimated, in their units.
        seconds: Wall-clock time by stage.
    """

    posterior: ImageDistribution
    fitted: FittedImage = field(repr=False)
    weights: Gaussian = field(repr=False)
    noise: float
    seconds: dict[str, float] = field(default_factory=dict)

    def times(self, scale: float) -> "ImageReconstruction":
        """The same for image and data multiplied by a factor; ``weights`` are unchanged."""
        return replace(self, posterior=self.posterior.times(scale), noise=scale * self.noise)

    @property
    def mean(self) -> Float[Tensor, "H W"]:
        """The reconstruction."""
        return self.posterior.mean

    @property
    def stddev(self) -> Float[Tensor, "H W"]:
        """The error bar of each pixel: one standard deviation."""
        return self.posterior.stddev


def reconstruct(
    operator: LinearOperator,
    data: Tensor,
    noise: float | None = None,
    *,
    prior: DeepImagePrior | None = None,
    error_bars: ErrorBars | None = None,
    scale: float = 1.0,
    seed: int = 0,
    progress: bool = False,
) -> ImageReconstruction:
    r"""Reconstruct an image with values in [0, scale] from a linear measurement, with error bars.

    .. math:: y = A x + \varepsilon, \qquad x = f(\hat\theta) + J(\theta - \hat\theta), \qquad \theta \sim N(0, \Sigma)

    A deep image prior gives f(θ̂). Linearised in its convolution filters it is a Gaussian model of the image, whose
    variances, length-scales and, if unknown, noise maximise the evidence; its posterior gives the error bars.
    [antoran2023dip]

    Args:
        operator: A.
        data: y.
        noise: σ, in the units of the data; None to estimate it.
        prior: Training settings of the deep image prior.
        error_bars: Settings of the linearised model.
        scale: The largest value of the image; :func:`~osculate.inverse.brightness` guesses one from rays.
        seed: Seed of initial weights and draws.
        progress: Show progress bars.

    Returns:
        The posterior of the image, with intermediate results and seconds by stage.

    Raises:
        ValueError: data that do not fit the operator, NaN, a noise that is not positive, or a network without filters.
        TypeError: ``prior`` or ``error_bars`` is not an object of its class.

    Cost: the training (see :meth:`DeepImagePrior.fit`), then a backward pass for each number that was measured (800 at
    most, by default), for each of 512 differences of neighbours with ``predcp`` and, up to 2,048 pixels, each pixel.
    The seconds of every stage are in the result.
    """
    require_data(operator, data, noise)
    require_positive("scale, the largest value of the image,", scale)
    how, bars, clock = prior or DeepImagePrior(), error_bars or ErrorBars(), Clock()
    require_object("prior", how, DeepImagePrior)
    require_object("error_bars", bars, ErrorBars)
    if how.network is not None and bars.start is None and not any(map(is_lazy, how.network.parameters())):
        filters_of(how.network)  # raises an error for a network without filters before the training
    with torch.inference_mode(False):
        scale, noise = float(scale), None if noise is None else float(noise) / float(scale)
        data = data / scale
        with clock.step("deep image prior"):
            fitted = how.fit(operator, data, noise, seed, progress)
        found = with_error_bars(operator, data, fitted, noise, error_bars=bars, seed=seed, progress=progress)
        return replace(found.times(scale), seconds=clock.seconds | found.seconds)


def with_error_bars(
    operator: LinearOperator,
    data: Tensor,
    fitted: FittedImage,
    noise: float | None = None,
    *,
    error_bars: ErrorBars | None = None,
    seed: int = 0,
    progress: bool = False,
) -> ImageReconstruction:
    """Error bars for a fitted deep image prior.

    Args:
        operator: A.
        data: y to which the deep image prior was fitted, of an image with values in [0, 1].
        fitted: f(θ̂).
        noise: σ, in the units of these data; None to estimate it.
        error_bars: Settings of the linearised model.
        seed: Seed of the draws.
        progress: Show progress bars.

    Raises:
        ValueError, TypeError: as :func:`reconstruct`.

    Warns of a network whose mean squared residual is more than twice the variance of the noise.
    """
    require_data(operator, data, noise)
    how, clock = error_bars or ErrorBars(), Clock()
    require_object("error_bars", how, ErrorBars)
    with torch.inference_mode(False):
        data = data.detach().clone()
        _warn_of_misfit(fitted.misfit(operator, data), noise, float(data.double().square().mean()))
        if how.predcp and not fitted.penalty:
            warnings.warn(
                "predcp, the prior over the hyperparameters, has the weight of the deep image prior's penalty, which "
                "is 0, so that it has no effect. Train with a penalty, or leave predcp out.",
                stacklevel=2,
            )
        image = LinearisedImage(operator, data, fitted, noise, how.start, how.rank, progress)
        predcp = how.predcp and how.objective != "none" and bool(fitted.penalty)
        with clock.step("Jacobian and covariances"):
            weights, _ = image.q, image.penalty if predcp else None
        if how.objective != "none":
            with clock.step("evidence"):
                weights = image.tuned(OBJECTIVES[how.objective], predcp)
        level = float(weights.likelihood.scale)  # type: ignore[attr-defined]
        with clock.step("posterior"):
            floor = image_noise(operator, level)
            exact = how.posterior == "exact" or (how.posterior == "auto" and operator.pixels <= EXACT)
            posterior = image.posterior(weights, exact, floor, how.samples, torch.Generator().manual_seed(seed))
        if floor > HIGH_FLOOR and floor**2 > 0.5 * float(posterior.variance.mean()):
            warnings.warn(
                f"most of the error bar of every pixel, {floor:.2g} of the range of values, is the noise of the data "
                "carried back into the image (image_noise), so that error bars hardly differ between pixels: the noise "
                "is too large, or the operator blurs too much. Check the noise, or measure more.",
                stacklevel=2,
            )
        return ImageReconstruction(posterior, fitted, weights, level, clock.seconds)


def _warn_of_misfit(misfit: float, noise: float | None, size: float) -> None:
    """Warn of a network that underfits or overfits data with mean square ``size``."""
    if noise is None:
        if misfit > UNEXPLAINED * size:
            warnings.warn(
                f"the deep image prior leaves {100 * misfit / size:.0f} % of the measurements' mean square "
                "unexplained, which then counts as noise: check scale, shape and the order of angles and detectors, or "
                "train for more steps.",
                stacklevel=3,
            )
        return
    ratio = misfit / noise**2
    if ratio < OVERFITTED:
        warnings.warn(
            f"the residual is small beside the given noise (mean square {ratio:.2g} of its variance): check "
            "the noise, a standard deviation in the units of the measurements, or train for fewer steps.",
            stacklevel=3,
        )
    if ratio > UNFITTED:
        warnings.warn(
            f"the deep image prior has not fitted the data: the mean squared residual is {ratio:.1f} times the "
            "variance of the noise, and error bars do not include this bias. Train for more steps, with a smaller "
            "penalty, or check noise and scale.",
            stacklevel=3,
        )
