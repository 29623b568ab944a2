"""Values from 0 to 1, such as grey pixels, with the continuous Bernoulli distribution of one logit each."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import ContinuousBernoulli as TorchContinuousBernoulli, Distribution, constraints

from osculate.likelihoods._base import Link, by_datum
from osculate.likelihoods._elementwise import Canonical, mix, require_unit_interval
from osculate.likelihoods.quadrature import NODES, normal_nodes
from osculate.randomness import uniform

#: Below this |f|, the normaliser and its derivatives are summed as series: their closed forms cancel there.
SERIES_BELOW = 1.0
#: ζ(2), ζ(4) … of Riemann's function, enough for double precision.
ZETA = (
    1.6449340668482264, 1.0823232337111381, 1.0173430619844492, 1.0040773561979444, 1.000994575127818,
    1.000246086553308, 1.0000612481350588, 1.0000152822594086, 1.000003817293265, 1.0000009539620338,
    1.0000002384505027,
)  # fmt: skip
#: The coefficients of f², f⁴ … in log(sinh(f/2) / (f/2)).
SERIES = tuple(float((-1) ** (k + 1) * zeta / (k * (2 * pi) ** (2 * k))) for k, zeta in enumerate(ZETA, 1))


@dataclass(frozen=True, eq=False)
class ContinuousBernoulli(Canonical):
    r"""p(y|f) ∝ e^{f y} for y from 0 to 1, independent over outputs of any shape. [loaizaganem2019]

    .. math:: \log p(y \mid f) = \sum_c \left[ y_c f_c - A(f_c) \right], \qquad
       A(f) = \log \int_0^1 e^{f t}\, dt = \log \frac{e^f - 1}{f}, \qquad
       \Lambda = \operatorname{diag} A''(f) = \operatorname{diag}\Big( \frac{1}{f^2} - \frac{1}{4 \sinh^2(f/2)} \Big)

    A density of grey values, unlike the cross entropy of ``Bernoulli(grey=True)``, which has the same terms in y but no
    normaliser. The link is canonical: observed and expected Hessian are the same. The mean A'(f) is not
    sigmoid(f); it approaches 0 and 1 only as 1/|f|.

    >>> ContinuousBernoulli().log_prob(torch.zeros(1, 1), torch.ones(1, 1))
    tensor([0.])
    >>> ContinuousBernoulli().log_prob(torch.full((1, 1), 2.0), torch.ones(1, 1))
    tensor([0.8386])
    """

    def check(self, f: Float[Tensor, "N *C"], y: Tensor) -> None:
        super().check(f, y)
        require_unit_interval("ContinuousBernoulli", y)

    def log_prob(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, " N"]:
        return by_datum(_log_density(f, y.to(f.dtype)))

    def precision(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N *C"]:
        return _variance(f)

    def drawn(self, f: Float[Tensor, "S N *C"], generator: torch.Generator | None) -> Float[Tensor, "S N *C"]:
        return _quantile(f, uniform(f.shape, f, generator, axis=1))

    def distribution(self, f: Float[Tensor, "N *C"]) -> "ContinuousBernoulliDistribution":
        return ContinuousBernoulliDistribution(logits=f)

    def response(self, f: Float[Tensor, "*S M E"]) -> Float[Tensor, "*S M E"]:
        return _mean(f)

    def marginal(
        self, mean: Float[Tensor, "N *C"], covariance: Float[Tensor, "N ..."], link: Link, noise: bool = True
    ) -> Distribution:
        """A mixture over 64 Gauss–Hermite nodes of f; the link is not needed.

        Densities are accurate to 1e-7 for standard deviations of f up to 5, and to 1e-3 up to 10. Beyond 20 the nodes
        are too far apart: sample functions instead, with ``link="functions"`` or ``via="sampled"``.
        """
        nodes, log_weights = (values.to(mean) for values in normal_nodes(2 * NODES))
        f = mean.unsqueeze(-1) + covariance.reshape(mean.shape).sqrt().unsqueeze(-1) * nodes
        return mix(self.distribution(f), log_weights)

    def mixture(self, f: Float[Tensor, "S N *C"], noise: bool = True) -> Distribution:
        return mix(self.distribution(f.movedim(0, -1)))


class ContinuousBernoulliDistribution(TorchContinuousBernoulli):
    """The continuous Bernoulli distribution of a logit, accurate for every logit.

    The implementation in torch uses sigmoid(f): in single precision its density does not integrate to one beyond
    |f| = 16, which network outputs on images reach, and near f = 0 its variance is lost to cancellation.

    >>> ContinuousBernoulliDistribution(logits=torch.tensor([0.0, 100.0])).mean
    tensor([0.5000, 0.9900])
    """

    arg_constraints: ClassVar[dict] = {"logits": constraints.real}  # type: ignore[misc]

    @property
    def mean(self) -> Tensor:
        """A'(f)."""
        return _mean(self.logits)

    @property
    def variance(self) -> Tensor:
        """A''(f)."""
        return _variance(self.logits)

    def log_prob(self, value: Tensor) -> Tensor:
        """f y − A(f)."""
        if self._validate_args:
            self._validate_sample(value)
        return _log_density(*torch.broadcast_tensors(self.logits, value))

    def cdf(self, value: Tensor) -> Tensor:
        """(e^{f y} − 1)/(e^f − 1)."""
        if self._validate_args:
            self._validate_sample(value)
        f, y = torch.broadcast_tensors(self.logits, value)
        # computed from the end with most of the mass, to avoid e^{|f|}
        rate = f.abs().clamp(min=torch.finfo(f.dtype).eps)
        below = (-rate * torch.where(f > 0, 1 - y, y)).expm1() / (-rate).expm1()
        return torch.where(f > 0, 1 - below, below)

    def icdf(self, value: Tensor) -> Tensor:
        """log(1 + u (e^f − 1))/f."""
        return _quantile(self.logits, value)

    def entropy(self) -> Tensor:
        """A(f) − f A'(f)."""
        f = -self.logits.abs()  # symmetric in f; a mean near 0 keeps digits that a mean near 1 loses
        return -_log_density(f, _mean(f))


def _log_density(f: Tensor, y: Tensor) -> Tensor:
    """f y − A(f), without differences of large numbers."""
    small, near, far = _regimes(f)
    around_zero = (y - 0.5) * near - near.square() * _series(near, SERIES)
    elsewhere = (y - 1) * f.clamp(min=0) + y * f.clamp(max=0) + far.log() - (-(-far).exp()).log1p()
    return torch.where(small, around_zero, elsewhere)


def _mean(f: Tensor) -> Tensor:
    """A'(f) = 1/(1 − e^{−f}) − 1/f."""
    small, near, far = _regimes(f)
    around_zero = 0.5 + near * _series(near, [2 * k * c for k, c in enumerate(SERIES, 1)])
    from_end = 1 / far + (-far).exp() / (-far).expm1()  # the mean distance from the end that is nearer
    return torch.where(small, around_zero, torch.where(f > 0, 1 - from_end, from_end))


def _variance(f: Tensor) -> Tensor:
    """A''(f) = 1/f² − e^{−f}/(1 − e^{−f})²."""
    small, near, far = _regimes(f)
    around_zero = _series(near, [2 * k * (2 * k - 1) * c for k, c in enumerate(SERIES, 1)])
    return torch.where(small, around_zero, far**-2 - (-far).exp() / (-far).expm1().square())


def _quantile(f: Tensor, u: Tensor) -> Tensor:
    """The y with P(Y ≤ y) = u."""
    rate = f.abs().clamp(min=torch.finfo(f.dtype).eps)
    from_end = -(torch.where(f > 0, 1 - u, u) * (-rate).expm1()).log1p() / rate
    from_end = from_end.clamp(max=1)  # infinite for u at an end
    return torch.where(f > 0, 1 - from_end, from_end)


def _regimes(f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A mask of small |f|; f there, else 0; |f| elsewhere, and SERIES_BELOW there, so that no formula overflows."""
    small = f.abs() < SERIES_BELOW
    return small, torch.where(small, f, 0), torch.where(small, SERIES_BELOW, f.abs())


def _series(f: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Σ_k c_k f^{2k}, k from 0."""
    total = torch.zeros_like(f)
    for c in reversed(coefficients):
        total = total * f.square() + c
    return total
