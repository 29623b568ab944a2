"""The linearised model of an image: its evidence, tuned, and its posterior."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from osculate.checks import require_whole
from osculate.inverse.dip import FittedImage
from osculate.inverse.evidence import RANK, Observed, Tuned, log_evidence, tune_filters
from osculate.inverse.filters import FilterPrior
from osculate.inverse.image_distributions import ImageDistribution
from osculate.inverse.linearised import LinearisedImage, linear_mode
from osculate.inverse.operators import LinearOperator
from osculate.inverse.posterior import carried_back, drawn_posterior, exact_posterior, singular_values
from osculate.inverse.predcp import PredCP
from osculate.registry import choose

#: Around which weights the evidence is taken; "none" leaves the prior as it begins.
TUNED = ("map", "linear", "linear_tv")
OBJECTIVES = (*TUNED, "none")
POSTERIORS = ("auto", "exact", "drawn")
#: Pixels up to which the covariance of the whole image is formed by default.
EXACT = 2048


@dataclass(frozen=True)
class ErrorBars:
    """Settings for tuning the linearised model and computing its posterior.

    Args:
        objective: "map" (the evidence around the network's own weights), "linear" (at the mode of the linear model: the
            exact evidence), "linear_tv" (around weights on the way to that mode under the total-variation penalty), or
            "none".
        predcp: use a prior over the hyperparameters that expects images of low total variation, and has the weight of
            the deep image prior's penalty.
        posterior: "exact" (the covariance of all pixels), "drawn" (samples by conjugate gradients), or "auto": exact
            for images of at most 2,048 pixels.
        samples: draws, where the posterior is known by draws.
        linear_steps: steps of Adam to that mode, for "linear_tv".
        rank: directions in data space that the evidence works with at most.
        start: initial prior, in place of the one from the network.

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
            raise ValueError("predcp is a prior for the tuning, and with objective='none' nothing is tuned.")
        require_whole("samples", self.samples, 2)
        require_whole("rank", self.rank)
        require_whole("linear_steps", self.linear_steps)


class LinearisedModel:
    r"""y = A h(θ) + ε with θ ~ N(0, Σ): all that is computed once for a fitted image, and used for every tuning.

    Args:
        operator: A.
        data: y.
        fitted: f(θ̂) of a deep image prior.
        noise: σ; None to estimate it.
        settings: settings of the tuning and the posterior.
        progress: show bars.
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
        #: σ where it begins: the residual of the deep image prior, if it is not known.
        self.level = fitted.level(operator, data, noise)
        self.linearised = LinearisedImage(fitted.network, fitted.input, self.start.space)

    @cached_property
    def observed(self) -> Observed:
        """The model as the data see it."""
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
        """σ_x for a noise of σ, in every error bar: see :func:`~osculate.inverse.posterior.image_noise`.

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

    def prepare(self, predcp: bool) -> None:
        """Compute now what every tuning needs.

        Args:
            predcp: use the prior over the hyperparameters.
        """
        _ = self.observed
        if predcp and self.penalty:
            _ = self.hyper_prior

    def tune(self, objective: str, predcp: bool, noise: float | None) -> Tuned:
        """Maximise the evidence.

        Args:
            objective: around which weights: "map", "linear" or "linear_tv", see :class:`ErrorBars`.
            predcp: use the prior over the hyperparameters.
            noise: σ, None to tune it.

        Raises:
            ValueError: an unknown objective.
        """
        choose("objective", objective, TUNED)
        weights, seen = None, None
        if objective != "linear":
            tv = objective == "linear_tv"
            weights, image = self._linear_mode if tv else (self.linearised.weights, self.linearised.image)
            seen = self.operator(image).reshape(-1).double()
        return tune_filters(
            lambda prior, sigma: log_evidence(self.observed, prior, sigma, weights, seen),
            self.start,
            self.level if noise is None else noise,
            noise is not None,
            self.hyper_prior if predcp and self.penalty else None,
        )

    def posterior(self, tuned: Tuned | None, generator: torch.Generator | None = None) -> ImageDistribution:
        """The posterior of the image.

        Args:
            tuned: prior and noise; None for those it begins with.
            generator: source of random numbers.
        """
        prior, level = (self.start, self.level) if tuned is None else (tuned.prior, tuned.noise)
        floor, how = self.floor(level), self._settings
        if how.posterior == "exact" or (how.posterior == "auto" and self.operator.pixels <= EXACT):
            return exact_posterior(self.linearised, self.operator, prior, level, floor)
        observed = None if tuned is None else self.observed
        return drawn_posterior(
            self.linearised, self.operator, prior, level, floor, observed, how.samples, generator, self._progress
        )
