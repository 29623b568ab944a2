"""The options of ``osculate train --method vae``: pixels, codes, and the bound that is trained on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from osculate.autoencoders import CODE_PRIORS, ELBO, ESTIMATORS, BoundSettings, Corruption
from osculate.checks import require_whole
from osculate.likelihoods import Bernoulli, ContinuousBernoulli, Gaussian, HeteroscedasticGaussian, Likelihood
from osculate.priors import Prior
from osculate.registry import choose

#: p(x|z) by name, of a noise scale where they have one.
PIXELS: Mapping[str, Callable[[float | None], Likelihood]] = {
    "gaussian": lambda noise: Gaussian(1.0 if noise is None else noise),
    "gaussian_per_pixel": lambda noise: HeteroscedasticGaussian(class_axis=1),
    "bernoulli": lambda noise: Bernoulli(grey=True),
    "continuous_bernoulli": lambda noise: ContinuousBernoulli(),
}


@dataclass(frozen=True)
class CodeOptions:
    """What is known by its name after ``--codes.``.

    Args:
        likelihood: of pixels, one of :data:`PIXELS`.
        prior: of codes, one of ``CODE_PRIORS``.
        estimator: of the bound, one of ``ESTIMATORS``.
        samples: codes drawn for each image.
        warmup: epochs over which the divergence gains its weight.
        masked: share of pixels that are zero in what is encoded while training.
        fading: how that share goes on: constant, linear, cosine or step.

    Raises:
        ValueError: a value that is none of these.
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
                "--codes.fading says how masked pixels fade, and none are masked: pass --codes.masked too."
            )
        self.settings  # noqa: B018  (refuses what it cannot be)

    @classmethod
    def named(cls, given: Mapping[str, Any] | None) -> "CodeOptions":
        """Those that a user has named.

        Raises:
            ValueError: a name that is none, or a value that cannot be.

        >>> CodeOptions.named({"prior": "beta"}).prior
        'beta'
        """
        given = given or {}
        for name in given:
            choose("option --codes.", name, [field.name for field in fields(cls)])
        return cls(**given)

    @property
    def has_noise(self) -> bool:
        """Whether the pixels have a noise of one size, which held-out images tell."""
        return self.likelihood == "gaussian"

    @property
    def network(self) -> dict[str, Any]:
        """What it means for the network."""
        outputs = {"outputs": 2} if self.likelihood == "gaussian_per_pixel" else {}
        return {"variational": True, "prior": self.prior, **outputs}

    @property
    def settings(self) -> BoundSettings:
        """What it means for training."""
        corruption = Corruption("mask", self.masked, self.fading) if self.masked else None
        return BoundSettings(warmup=self.warmup, corruption=corruption)

    def method(self, model: Any, likelihood: Likelihood, prior: float | Prior) -> ELBO:
        """The training."""
        return ELBO(model, likelihood, prior, self.estimator, self.samples, self.settings)
