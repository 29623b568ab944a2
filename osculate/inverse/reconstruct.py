"""Reconstruction of an image with error bars from measurements."""

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.parameter import is_lazy

from osculate.checks import require_object, require_positive, require_whole
from osculate.inverse.dip import DeepImagePrior, FittedImage
from osculate.inverse.evidence import RANK, Observed, PredCP, Tuned, log_evidence, tune_filters
from osculate.inverse.filters import FilterPrior
from osculate.inverse.image_distributions import ImageDistribution
from osculate.inverse.linearised import LinearisedImage, linear_mode
from osculate.inverse.operators import LinearOperator
from osculate.inverse.operators._base import require_data
from osculate.inverse.posterior import carried_back, drawn_posterior, exact_posterior, singular_values
from osculate.progress import Clock
from osculate.registry import choose

#: The weights around which the evidence is taken; "none" keeps the initial prior.
TUNED = ("map", "linear", "linear_tv")
OBJECTIVES = (*TUNED, "none")
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
            exact evidence), "linear_tv" (around weights on the way to that mode under the total-variation penalty), or
            "none".
        predcp: True to use a prior over the hyperparameters that favours images of low total variation, with the weight
            of the deep image prior's penalty.
        posterior: "exact" (the covariance of all pixels), "drawn" (samples by conjugate gradients), or "auto": exact
            for images of at most 2,048 pixels.
        samples: Number of draws of a drawn posterior.
        linear_steps: Steps of Adam towards that mode, for "linear_tv".
        rank: Largest number of directions in data space that the evidence uses.
        start: Initial prior; by default that of the network.

    Raises:
        ValueError: an unknown objective or posterior, a number that is not positive, or predcp without an objective.
    """

    objective: str = "map"
    predcp: bool = False
    posterior: str = "auto"
    samples: int = 64
    rank: int = RANK
    linear_steps: int = 1000
    start: FilterPrior | None = None

    def __post_init__(self) -> None:
        choose("objective", self.objective, OBJECTIVES)
        choose("posterior", self.posterior, POSTERIORS)
        if self.objective == "none" and self.predcp:
            raise ValueError("predcp is a prior for the tuning, and objective='none' tunes nothing: leave one out.")
        require_whole("samples", self.samples, 2)
        require_whole("rank", self.rank)
        require_whole("linear_steps", self.linear_steps)


class LinearisedModel:
    r"""y = A h(θ) + ε with θ ~ N(0, Σ): quantities computed once for a fitted image, and shared by tunings.

    Args:
        operator: A.
        data: y.
        fitted: f(θ̂) of a deep image prior.
        noise: σ; None to estimate it.
        settings: Settings of the tuning and the posterior.
        progress: Show progress bars.
    """

    def __init__(
        self,
        operator: LinearOperator,
        data: Tensor,
        fitted: FittedImage,
        noise: float | None,
        settings: ErrorBars,
        progress: bool = False,
    ) -> None:
        self.operator, self.data = operator, data
        #: λ of the deep image prior, also the weight of the prior over hyperparameters.
        self.penalty = fitted.penalty
        self._settings, self._progress = settings, progress
        self.start = settings.start or FilterPrior.of(fitted.network)
        #: Initial σ: the residual of the deep image prior, if it is unknown.
        self.level = fitted.level(operator, data, noise)
        self.linearised = LinearisedImage(fitted.network, fitted.input, self.start.space)

    @cached_property
    def observed(self) -> Observed:
        """The model in data space."""
        return Observed.of(
            self.linearised, self.operator, self.data, self.start, self.level, self._settings.rank, self._progress
        )

    @cached_property
    def hyper_prior(self) -> PredCP:
        """The prior over the hyperparameters."""
        return PredCP.of(self.linearised, self.start, self.penalty, progress=self._progress)

    @cached_property
    def _singular_values(self) -> Tensor:
        return singular_values(self.operator)

    def floor(self, level: float) -> float:
        """σ_x, a part of every error bar: see :func:`~osculate.inverse.posterior.image_noise`.

        Args:
            level: σ.
        """
        return carried_back(self._singular_values, level, self.operator.pixels)

    @cached_property
    def _linear_mode(self) -> tuple[Tensor, Tensor]:
        return linear_mode(
            self.linearised,
            self.operator,
            self.data,
            self.level,
            self.penalty,
            self._settings.linear_steps,
            progress=self._progress,
        )

    def tune(self, objective: str, predcp: bool, noise: float | None) -> Tuned:
        """Maximise the evidence.

        Args:
            objective: "map", "linear" or "linear_tv", see :class:`ErrorBars`.
            predcp: Use the prior over the hyperparameters.
            noise: σ, None to tune it.

        Raises:
            ValueError: an unknown objective.
        """
        choose("objective", objective, TUNED)
        weights, prediction = None, None
        if objective != "linear":
            tv = objective == "linear_tv"
            weights, image = self._linear_mode if tv else (self.linearised.weights, self.linearised.image)
            prediction = self.operator(image).reshape(-1).double()
        return tune_filters(
            lambda prior, sigma: log_evidence(self.observed, prior, sigma, weights, prediction),
            self.start,
            self.level if noise is None else noise,
            noise is not None,
            self.hyper_prior if predcp and self.penalty else None,
        )

    def posterior(self, tuned: Tuned | None, generator: torch.Generator | None = None) -> ImageDistribution:
        """The posterior of the image.

        Args:
            tuned: Prior and noise; None for the initial ones.
            generator: Source of random numbers.
        """
        prior, level = (self.start, self.level) if tuned is None else (tuned.prior, tuned.noise)
        floor, how = self.floor(level), self._settings
        if how.posterior == "exact" or (how.posterior == "auto" and self.operator.pixels <= EXACT):
            return exact_posterior(self.linearised, self.operator, prior, level, floor)
        observed = None if tuned is None else self.observed
        return drawn_posterior(
            self.linearised, self.operator, prior, level, floor, observed, how.samples, generator, self._progress
        )


@dataclass(frozen=True)
class ImageReconstruction:
    """A reconstructed image with its posterior.

    Attributes:
        posterior: Posterior of the image; its mean is the reconstruction.
        fitted: The deep image prior, whose image has values in [0, 1] whatever the scale.
        tuned: Prior over the filters, noise and evidence for the data divided by the scale; None if nothing was tuned.
        noise: σ of the data, given or estimated, in their units.
        seconds: Wall-clock time by stage.
    """

    posterior: ImageDistribution
    fitted: FittedImage = field(repr=False)
    tuned: Tuned | None = field(repr=False)
    noise: float
    seconds: dict[str, float] = field(default_factory=dict)

    def times(self, scale: float) -> "ImageReconstruction":
        """The same for image and data multiplied by a factor; ``tuned`` is unchanged."""
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
        scale: The largest value of the image; :func:`~osculate.inverse.classical.brightness` guesses one from rays.
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
        FilterPrior.of(how.network)  # raises an error for a network without filters before the training
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
    how, clock, tuned = error_bars or ErrorBars(), Clock(), None
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
        model = LinearisedModel(operator, data, fitted, noise, how, progress)
        if how.objective != "none":
            with clock.step("Jacobian and covariances"):
                _ = model.observed, model.hyper_prior if how.predcp and fitted.penalty else None
            with clock.step("evidence"):
                tuned = model.tune(how.objective, how.predcp, noise)
        with clock.step("posterior"):
            posterior = model.posterior(tuned, torch.Generator().manual_seed(seed))
        level = tuned.noise if tuned else model.level
        floor = model.floor(level)
        if floor > HIGH_FLOOR and floor**2 > 0.5 * float(posterior.variance.mean()):
            warnings.warn(
                f"most of the error bar of every pixel, {floor:.2g} of the range of values, is the noise of the data "
                "carried back into the image (image_noise), so that error bars hardly differ between pixels: the noise "
                "is too large, or the operator blurs too much. Check the noise, or measure more.",
                stacklevel=2,
            )
        return ImageReconstruction(posterior, fitted, tuned, level, clock.seconds)


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
