"""Real-valued targets with a noise variance that the network predicts."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.distributions import Distribution, Normal

from osculate.likelihoods._base import Likelihood, Link, by_datum
from osculate.likelihoods._elementwise import mix, require_floating, spread, without_noise
from osculate.likelihoods.quadrature import normal_nodes
from osculate.randomness import normal

#: Bound on the absolute log variance: e⁸⁰ is near the largest number in single precision.
LARGEST_LOG = 80.0
#: Nodes of the log variance, of which the density is a steep function.
FINE = 128


@dataclass(frozen=True, eq=False)
class HeteroscedasticGaussian(Likelihood):
    r"""y ~ N(m, e^s), mean m and log variance s both outputs of the network.

    .. math:: \log p(y \mid m, s) = -\tfrac12 \left[(y - m)^2 e^{-s} + s + \log 2\pi\right],
       \qquad \mathbb{E}\,\Lambda = \operatorname{diag}(e^{-s}, \tfrac12)

    Convention: the axis ``class_axis`` of the outputs holds first all means and then, in the same order, all log
    variances. A network with outputs (N, 2·C) has targets (N, C); with ``class_axis=1``, outputs (N, 2·C, H, W) have
    targets (N, C, H, W).

    The observed Hessian is indefinite wherever y ≠ m (its determinant is −(y − m)² e^{−2s}/2), so the curvature is the
    expected one, the Fisher information. It does not depend on y.

    Args:
        class_axis: Axis of the outputs that holds means and log variances, counting the batch axis.

    Raises:
        ValueError: ``class_axis`` is the batch axis.

    >>> HeteroscedasticGaussian().log_prob(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0]]))
    tensor([-1.4189])
    """

    class_axis: int = -1
    interacts: ClassVar[str] = "axis"
    real_valued: ClassVar[bool] = True
    log_concave: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.class_axis == 0:
            raise ValueError("class_axis=0 is the batch axis: means and log variances are on a later one, such as -1.")

    def _halves(self, f: Tensor, dimensions: int | None = None) -> tuple[Tensor, Tensor]:
        """Means and log variances, each of the shape of the targets."""
        mean, log_variance = f.chunk(2, self._axis(f.ndim if dimensions is None else dimensions))
        return mean, log_variance

    def check(self, f: Float[Tensor, "N *C"], y: Tensor) -> None:
        require_floating(self, y)
        axis = self._axis(f.ndim)
        if f.shape[axis] % 2:
            raise ValueError(
                f"HeteroscedasticGaussian needs as many log variances as means on axis {axis} of the outputs, got "
                f"{f.shape[axis]} outputs there: an odd number. Give the network two outputs for each target."
            )
        expected = (*f.shape[:axis], f.shape[axis] // 2, *f.shape[axis + 1 :])
        if y.shape != expected:
            raise ValueError(
                f"HeteroscedasticGaussian needs targets of shape {tuple(expected)} for outputs {tuple(f.shape)}, means "
                f"and log variances on axis {axis}, got {tuple(y.shape)}. Reshape the targets, for example with "
                "y.unsqueeze(-1), or let the network return both halves."
            )

    def log_prob(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, " N"]:
        mean, log_variance = self._halves(f)
        terms = (y - mean).square() * (-log_variance).exp() + log_variance + log(2 * pi)
        return -0.5 * by_datum(terms)

    def events(self, f: Shaped[Tensor, "N *C"]) -> int:
        """2: a mean and its log variance."""
        return 2

    def split(self, f: Shaped[Tensor, "..."], leading: int = 0) -> Shaped[Tensor, "... N T E"]:
        """(mean, log variance) of each target; targets in row-major order with the axis ``class_axis`` last."""
        f = f.movedim(leading + self._axis(f.ndim - leading), -1)
        return f.unflatten(-1, (2, f.shape[-1] // 2)).mT.flatten(leading + 1, -2)

    def merge(self, t: Shaped[Tensor, "... N T E"], shape: Sequence[int]) -> Shaped[Tensor, "..."]:
        """The inverse of :meth:`split`."""
        halves = [self._as_targets(half, shape) for half in t.unbind(-1)]
        return torch.cat(halves, self._axis(len(shape)) - len(shape))

    def _as_targets(self, t: Float[Tensor, "... N T"], shape: Sequence[int]) -> Tensor:
        """One number for each target (…, N, T) in the shape of the targets, for outputs of this shape."""
        axis = self._axis(len(shape))
        others = [*shape[1:axis], *shape[axis + 1 :], shape[axis] // 2]
        return t.reshape(*t.shape[:-1], *others).movedim(-1, axis - len(shape))

    def local_hessian(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N T E E"]:
        """The expected Hessian diag(e^{−s}, ½) of each target."""
        return self._information(f).diag_embed()

    def local_root(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "V N T E"]:
        return self._information(f).sqrt().diag_embed().movedim(-1, 0)

    def _information(self, f: Tensor) -> Float[Tensor, "N T E"]:
        precision = (-self.split(f)[..., 1]).exp()
        return torch.stack([precision, torch.full_like(precision, 0.5)], -1)

    def score(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N *C"]:
        mean, log_variance = self._halves(f)
        standard = (y.to(f.dtype) - mean) * (-0.5 * log_variance).exp()
        return self._score_of(standard, log_variance, f.ndim)

    def _score_of(self, standard: Tensor, log_variance: Tensor, dimensions: int) -> Tensor:
        """The score at a residual in units of the noise scale; axes may precede the batch axis."""
        halves = [standard * (-0.5 * log_variance).exp(), 0.5 * (standard.square() - 1)]
        return torch.cat(halves, self._axis(dimensions) - dimensions)

    def sampled_root(
        self, f: Float[Tensor, "N *C"], y: Tensor, samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "V N *C"]:
        log_variance = self._halves(f)[1]
        drawn = normal((samples, *log_variance.shape), f, generator, axis=1)
        return self._score_of(drawn, log_variance, f.ndim) / samples**0.5

    def distribution(self, f: Float[Tensor, "N *C"]) -> Normal:
        mean, log_variance = self._halves(f)
        return Normal(mean, (0.5 * log_variance).exp())

    def needs_covariance(self, link: Link) -> bool:
        """Return True: the predictive needs the covariance of mean and log variance."""
        return True

    def marginal(
        self, mean: Float[Tensor, "N *C"], covariance: Float[Tensor, "N ..."], link: Link, noise: bool = True
    ) -> Distribution:
        r"""A mixture of normals over Gauss–Hermite nodes s_k of the log variance; the link is not needed.

        Given s_k, m is normal with mean μ_m + c (s_k − μ_s)/v_s and variance v_m − c²/v_s, c its covariance with s, and
        y adds the variance e^{s_k}. Without noise: N(μ_m, v_m), exactly. The log density is within 10⁻⁴ nats of the
        integral for standard deviations of the log variance up to 3, and within 4·10⁻³ up to 5; with a correlation of
        0.99 between m and s, within 3·10⁻³ and 10⁻².
        """
        means, logs = self._halves(mean)
        block = covariance.reshape(len(mean), -1, 2, 2)
        of_mean, of_log, both = (
            self._as_targets(block[..., i, j], mean.shape).unsqueeze(-1) for i, j in ((0, 0), (1, 1), (0, 1))
        )
        if not noise:
            return without_noise(means, of_mean.squeeze(-1))
        nodes, log_weights = (values.to(mean) for values in normal_nodes(FINE))
        slope = both * of_log.clamp(min=torch.finfo(mean.dtype).tiny).rsqrt()
        s = (logs.unsqueeze(-1) + of_log.sqrt() * nodes).clamp(-LARGEST_LOG, LARGEST_LOG)
        variance = (of_mean - slope.square()).clamp(min=0) + s.exp()
        return mix(Normal(means.unsqueeze(-1) + slope * nodes, variance.sqrt()), log_weights)

    def mixture(self, f: Float[Tensor, "S N *C"], noise: bool = True) -> Distribution:
        mean, log_variance = self._halves(f.movedim(0, -1), f.ndim - 1)
        if not noise:
            return spread(mean.movedim(-1, 0))
        return mix(Normal(mean, (0.5 * log_variance).exp()))
