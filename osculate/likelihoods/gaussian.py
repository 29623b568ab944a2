"""Real-valued targets with Gaussian noise, of one scale for all outputs or one for each."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log, pi, prod
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal, Normal

from osculate.likelihoods._base import Likelihood, Link, by_datum
from osculate.likelihoods._elementwise import Elementwise, mix, require_floating, spread, without_noise
from osculate.linalg import jittered
from osculate.randomness import normal
from osculate.settings import differences

#: Jitter of a joint covariance, relative to its mean diagonal, that is worth a warning.
VISIBLE = 1e-8


@dataclass(frozen=True, eq=False)
class Gaussian(Elementwise):
    r"""y ~ N(f, σ²), independent over outputs of any shape.

    .. math:: \log p(y \mid f) = -\tfrac12 \sum_c \left[(y_c - f_c)^2/\sigma_c^2 + \log 2\pi\sigma_c^2\right],
       \qquad \Lambda = \operatorname{diag}(\sigma^{-2})

    Args:
        scale: The noise standard deviation σ in units of the target: a number or scalar tensor, or a tensor of
            the shape of one output (one scale for each). May require gradients.

    Raises:
        ValueError: a scale is not positive and finite.

    >>> Gaussian(scale=2.0).log_prob(torch.zeros(1, 1), torch.zeros(1, 1))
    tensor([-1.6121])
    """

    scale: float | Tensor = 1.0
    has_noise: ClassVar[bool] = True
    quadratic: ClassVar[bool] = True
    real_valued: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_scale(self.scale)

    def _scale(self, f: Tensor) -> Tensor:
        return torch.as_tensor(self.scale, dtype=f.dtype, device=f.device)

    def log_prob(self, f: Float[Tensor, "N *C"], y: Float[Tensor, "N *C"]) -> Float[Tensor, " N"]:
        scale = self._scale(f)
        terms = ((y - f) / scale) ** 2 + 2 * scale.log() + log(2 * pi)
        return -0.5 * by_datum(terms)

    def check(self, f: Float[Tensor, "N *C"], y: Tensor) -> None:
        require_floating(self, y)
        super().check(f, y)
        scale = tuple(torch.as_tensor(self.scale).shape)
        if scale not in ((), tuple(f.shape[1:])):
            raise ValueError(
                f"the noise scale has shape {scale}, one output {tuple(f.shape[1:])}: give one number, or one for each."
            )

    def precision(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N *C"]:
        return (self._scale(f) ** -2).expand_as(f)

    def score(self, f: Float[Tensor, "N *C"], y: Float[Tensor, "N *C"]) -> Float[Tensor, "N *C"]:
        return (y.to(f.dtype) - f) / self._scale(f) ** 2

    def sampled_root(
        self, f: Float[Tensor, "N *C"], y: Tensor, samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "V N *C"]:
        return normal((samples, *f.shape), f, generator, axis=1) / self._scale(f) / samples**0.5

    def distribution(self, f: Float[Tensor, "N *C"]) -> Normal:
        return Normal(f, self._scale(f).expand_as(f))

    def response(self, f: Float[Tensor, "*S M E"]) -> Float[Tensor, "*S M E"]:
        return f

    def marginal(
        self, mean: Float[Tensor, "N *C"], covariance: Float[Tensor, "N ..."], link: Link, noise: bool = True
    ) -> Normal:
        """N(mean, variance of f + σ²), exactly; the link is not needed."""
        variance = covariance.reshape(mean.shape)
        return Normal(mean, (variance + self._scale(mean) ** 2).sqrt()) if noise else without_noise(mean, variance)

    def joint(
        self, mean: Float[Tensor, "*N c"], covariance: Float[Tensor, "*N c c"], noise: bool = True
    ) -> MultivariateNormal:
        """The joint normal with this covariance of f (and σ² on its diagonal); c may run over inputs and outputs.

        Warns where a covariance that is indefinite by rounding needs a jitter that single precision would show.
        """
        scale = self._scale(mean).reshape(-1)
        variance = scale.square().repeat(mean.shape[-1] // len(scale)) * noise
        tiny = torch.full_like(variance, torch.finfo(mean.dtype).tiny).double()  # of a function that is certain
        factor, jitter = jittered(covariance.double() + (variance.double() + tiny).diag())
        if jitter > VISIBLE:
            warnings.warn(
                f"a joint covariance is indefinite by rounding: {jitter:.0e} of its diagonal was added.",
                stacklevel=3,
            )
        return MultivariateNormal(mean, scale_tril=factor.to(mean.dtype), validate_args=False)

    def mixture(self, f: Float[Tensor, "S N *C"], noise: bool = True) -> Distribution:
        if not noise:
            return spread(f)
        return mix(Normal(f.movedim(0, -1), self._scale(f).expand_as(f).movedim(0, -1)))

    def statistics(self, f: Float[Tensor, "N *C"], y: Float[Tensor, "N *C"]) -> dict[str, Tensor]:
        """The squared error, separately for each output with its own scale."""
        squares = (y - f).double().square().reshape(len(f), prod(f.shape[1:])).sum(0)
        if torch.as_tensor(self.scale).numel() == 1:
            squares = squares.sum().reshape(1)
        count = torch.tensor(f.numel() // max(len(squares), 1), dtype=torch.double, device=f.device)
        return {"squared_error": squares, "count": count}

    def _scales_of(self, errors: Tensor) -> Tensor:
        """The scale of each of the stored squared errors."""
        scale = self._scale(errors).reshape(-1)
        if len(scale) not in (1, len(errors)):
            raise ValueError(
                f"squared errors were summed for {len(errors)} noise scale(s), but the likelihood has {len(scale)}: "
                "fit again with one scale for each output."
            )
        return scale.expand(len(errors))

    def log_likelihood(self, statistics: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        errors = statistics["squared_error"]
        scale = self._scales_of(errors)
        return -0.5 * (errors / scale**2 + statistics["count"] * (2 * scale.log() + log(2 * pi))).sum()

    def curvature_scale(self, reference: Likelihood) -> Float[Tensor, ""] | float:
        if not isinstance(reference, Gaussian) or differences(reference, self, apart_from=("scale",)):
            return super().curvature_scale(reference)
        ratio = (_exact(reference.scale) / _exact(self.scale)) ** 2
        if ratio.numel() > 1 and not torch.allclose(ratio, ratio.reshape(-1)[0].expand_as(ratio), rtol=1e-4):
            raise ValueError(
                "the curvature was taken with noise scales in other proportions "
                f"({reference.scale} against {self.scale}): only a common factor can be changed without a new fit."
            )
        return ratio.mean() if ratio.numel() > 1 else ratio.reshape(())

    @property
    def curvature_unit(self) -> float:
        """1/scale² if all outputs share one scale, and 1 otherwise."""
        return float(self.scale) ** -2 if torch.as_tensor(self.scale).numel() == 1 else 1.0

    def times(self, factor: Float[Tensor, ""] | float) -> "Gaussian":
        """The same noise with every scale multiplied by ``factor``."""
        return replace(self, scale=self.scale * factor)

    def noise_balance(self, statistics: Mapping[str, Tensor]) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """N C, and SSE in units of σ²."""
        errors = statistics["squared_error"].double().cpu()
        data = statistics["count"].double().cpu() * len(errors)
        return data, (errors / self._scales_of(errors).square()).sum()


def _exact(scale: float | Tensor) -> Tensor:
    """A scale as a tensor, a number in double precision."""
    return scale if isinstance(scale, Tensor) else torch.tensor(scale, dtype=torch.double)


def require_scale(scale: float | Tensor) -> None:
    """Raise ValueError unless a noise scale is positive and finite."""
    values = torch.as_tensor(scale)
    if not bool((values > 0).all()) or not bool(values.isfinite().all()):
        raise ValueError(f"the noise scale must be positive and finite, got {scale}. It is a standard deviation.")
