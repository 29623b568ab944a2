"""Real-valued targets with Gaussian noise of one scale, or one for each output."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log, pi
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Categorical, Distribution, MixtureSameFamily, MultivariateNormal, Normal

from osculate.likelihoods._base import Likelihood, Link, require_same_shape


@dataclass(frozen=True, eq=False)
class Gaussian(Likelihood):
    r"""y ~ N(f, σ²), independent over outputs.

    .. math:: \log p(y \mid f) = -\tfrac12 \sum_c \left[(y_c - f_c)^2/\sigma_c^2 + \log 2\pi\sigma_c^2\right],
       \qquad \Lambda = \operatorname{diag}(\sigma^{-2})

    Args:
        scale: the noise standard deviation σ in units of the target: a number or scalar tensor, or a tensor of
            the shape of one output (one scale for each). May require gradients.

    Raises:
        ValueError: a scale is not positive and finite.

    >>> Gaussian(scale=2.0).log_prob(torch.zeros(1, 1), torch.zeros(1, 1))
    tensor([-1.6121])
    """

    scale: float | Tensor = 1.0
    has_noise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        scale = torch.as_tensor(self.scale)
        if not bool((scale > 0).all()) or not bool(scale.isfinite().all()):
            raise ValueError(
                f"the noise scale must be positive and finite, got {self.scale}. It is a standard deviation."
            )

    def _scale(self, like: Tensor) -> Tensor:
        return torch.as_tensor(self.scale, dtype=like.dtype, device=like.device)

    def log_prob(self, f: Float[Tensor, "N *C"], y: Float[Tensor, "N *C"]) -> Float[Tensor, " N"]:
        scale = self._scale(f)
        terms = ((y - f) / scale) ** 2 + 2 * scale.log() + log(2 * pi)
        return -0.5 * terms.reshape(len(f), -1).sum(-1)

    def check(self, f: Float[Tensor, "N *C"], y: Tensor) -> None:
        if not y.is_floating_point():
            raise TypeError(
                f"Gaussian needs floating-point targets, got {y.dtype}. Convert them with y.float(), or use "
                "Categorical for class indices."
            )
        require_same_shape(self, f, y)
        scale = tuple(torch.as_tensor(self.scale).shape)
        if scale not in ((), tuple(f.shape[1:])):
            raise ValueError(
                f"the noise scale has shape {scale}, one output {tuple(f.shape[1:])}: give one number, or one for each."
            )

    def _scale_of_outputs(self, f: Tensor) -> Tensor:
        return self._scale(f).expand(f.shape[1:]).reshape(-1)

    def hessian(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N c c"]:
        precision = self._scale_of_outputs(f) ** -2
        return precision.diag().expand(len(f), -1, -1)

    def root(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "V N *C"]:
        columns = self._scale_of_outputs(f).reciprocal().diag()
        return columns.unsqueeze(1).expand(-1, len(f), -1).reshape(-1, *f.shape)

    def sampled_root(
        self, f: Float[Tensor, "N *C"], y: Tensor, samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "V N *C"]:
        noise = torch.randn(samples, *f.shape, generator=generator, dtype=f.dtype, device=f.device)
        return noise / self._scale(f) / samples**0.5

    def distribution(self, f: Float[Tensor, "N *C"]) -> Normal:
        return Normal(f, self._scale(f).expand_as(f))

    def response(self, f: Float[Tensor, "*S N C"]) -> Float[Tensor, "*S N C"]:
        return f

    def needs_covariance(self, link: Link) -> bool:
        return False

    def marginal(
        self, mean: Float[Tensor, "N *C"], covariance: Float[Tensor, "N c"], link: Link, noise: bool = True
    ) -> Normal:
        """N(mean, variance of f + σ²), exactly; the link is not needed."""
        return Normal(mean, (covariance.reshape(mean.shape) + self._scale(mean) ** 2 * noise).sqrt())

    def joint(
        self, mean: Float[Tensor, "*N c"], covariance: Float[Tensor, "*N c c"], noise: bool = True
    ) -> MultivariateNormal:
        """The joint normal with this covariance of f (and σ² on its diagonal); c may run over inputs and outputs."""
        scale = self._scale(mean).reshape(-1)
        variance = scale.square().repeat(mean.shape[-1] // len(scale)) * noise
        total = covariance + variance.diag()
        tiny = torch.finfo(total.dtype).eps * total.diagonal(dim1=-2, dim2=-1).mean(-1)
        return MultivariateNormal(mean, total + tiny[..., None, None] * torch.eye(mean.shape[-1]).to(total))

    def mixture(self, f: Float[Tensor, "S N *C"], noise: bool = True) -> Distribution:
        if not noise:
            spread = f.std(0, correction=0) + torch.finfo(f.dtype).tiny  # one function has no spread
            return Normal(f.mean(0), spread)
        weights = torch.ones(f.shape[0], dtype=f.dtype, device=f.device).expand(*f.shape[1:], -1)
        return MixtureSameFamily(
            Categorical(weights), Normal(f.movedim(0, -1), self._scale(f).expand_as(f).movedim(0, -1))
        )

    def statistics(self, f: Float[Tensor, "N *C"], y: Float[Tensor, "N *C"]) -> dict[str, Tensor]:
        squares = (y - f).double().square().reshape(len(f), -1).sum(0)
        return {"squared_error": squares, "count": torch.tensor(len(f), dtype=torch.double, device=f.device)}

    def log_likelihood(self, statistics: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        errors = statistics["squared_error"]
        scale = self._scale(errors).reshape(-1).expand(len(errors))
        return -0.5 * (errors / scale**2 + statistics["count"] * (2 * scale.log() + log(2 * pi))).sum()

    def curvature_scale(self, reference: Likelihood) -> Float[Tensor, ""] | float:
        if not isinstance(reference, Gaussian):
            return super().curvature_scale(reference)
        ratio = (torch.as_tensor(reference.scale) / torch.as_tensor(self.scale)) ** 2
        if ratio.numel() > 1 and not torch.allclose(ratio, ratio.reshape(-1)[0].expand_as(ratio), rtol=1e-4):
            raise ValueError(
                "the curvature was taken with noise scales in other proportions "
                f"({reference.scale} against {self.scale}): only a common factor can be changed without a new fit."
            )
        return ratio.mean() if ratio.numel() > 1 else ratio.reshape(())

    def times(self, factor: Float[Tensor, ""] | float) -> "Gaussian":
        """The same noise with every scale multiplied by ``factor``."""
        return Gaussian(self.scale * factor)

    def noise_balance(self, statistics: Mapping[str, Tensor]) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """N C, and SSE in units of σ²."""
        errors = statistics["squared_error"].double().cpu()
        data = statistics["count"].double().cpu() * len(errors)
        return data, (errors / self._scale(errors).reshape(-1).square()).sum()
