"""The options of ``osculate train --method vae``: likelihood of pixels, prior of codes, and training bound."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from osculate.autoencoders import CODE_PRIORS, ELBO, ESTIMATORS, BoundSettings, Corruption
from osculate.checks import require_whole
from osculate.likelihoods import Bernoulli, ContinuousBernoulli, Gaussian, HeteroscedasticGaussian, Likelihood
from osculate.priors import Prior
from osculate.registry import choose

#: p(x|z) by name, as functions of a noise scale.
PIXELS: Mapping[str, Callable[[float | None], Likelihood]] = {
    "gaussian": lambda noise: Gaussian(1.0 if noise is None else noise),
    "gaussian_per_pixel": lambda noise: HeteroscedasticGaussian(class_axis=1),
    "bernoulli": lambda noise: Bernoulli(grey=True),
    "continuous_bernoulli": lambda noise: ContinuousBernoulli(),
}


@dataclass(frozen=True)
class CodeOptions:
    """The options after ``--codes.``.

    Args:
        likelihood: Likelihood of the pixels, a key of :data:`PIXELS`.
        prior: Prior of the codes, a key of ``CODE_PRIORS``.
        estimator: Estimator of the bound, a key of ``ESTIMATORS``.
        samples: Number of sampled codes for each image.
        warmup: Number of epochs in which the weight of the divergence grows to its final value.
        masked: Share of the encoder's input pixels that are set to zero in training.
        fading: Schedule of that share: constant, linear, cosine or step.

    Raises:
        ValueError: a value is unknown or out of range.
    """

    likelihood: str = "gaussian"
    prior: str = "normal"
    estimator: str | None = None
    samples: int = 1
    warmup: int = 0
    masked: float = 0.0
    fading: str = "constant"

    def __post_init__(self) -> None:
        choose("likelihood of pixels", self.likelihood, PIXELS)
        choose("prior of codes", self.prior, CODE_PRIORS)
        if self.estimator is not None:
            choose("estimator", self.estimator, ESTIMATORS)
        require_whole("--codes.samples", self.samples)
        if self.fading != "constant" and not self.masked:
            raise ValueError(
                "--codes.fading is the schedule of masked pixels, but no pixels are masked: pass --codes.masked too."
            )
        self.settings  # noqa: B018  (raises an error for invalid values)

    @classmethod
    def named(cls, given: Mapping[str, Any] | None) -> "CodeOptions":
        """Make the options from the named ones and defaults.

        Raises:
            ValueError: a name is unknown, or a value is out of range.

        >>> CodeOptions.named({"prior": "beta"}).prior
        'beta'
        """
        given = given or {}
        for name in given:
            choose("option --codes.", name, [field.name for field in fields(cls)])
        return cls(**given)

    @property
    def has_noise(self) -> bool:
        """True if the likelihood has a noise scale, which is estimated on held-out images."""
        return self.likelihood == "gaussian"

    @property
    def network(self) -> dict[str, Any]:
        """Keyword arguments of the network."""
        outputs = {"outputs": 2} if self.likelihood == "gaussian_per_pixel" else {}
        return {"variational": True, "prior": self.prior, **outputs}

    @property
    def settings(self) -> BoundSettings:
        """Settings of the bound."""
        corruption = Corruption("mask", self.masked, self.fading) if self.masked else None
        return BoundSettings(warmup=self.warmup, corruption=corruption)

    def method(self, model: Any, likelihood: Likelihood, prior: float | Prior) -> ELBO:
        """The method that trains the network."""
        return ELBO(model, likelihood, prior, self.estimator, self.samples, self.settings)
