"""Binary targets, or probabilities of a 1, with one logit each."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Bernoulli as BernoulliDistribution, constraints
from torch.nn.functional import logsigmoid

from osculate.likelihoods._base import Link, averaged, by_datum, random_signs, with_standard_error
from osculate.likelihoods._elementwise import Canonical, first_place, require_unit_interval
from osculate.randomness import uniform


@dataclass(frozen=True, eq=False)
class Bernoulli(Canonical):
    r"""y ~ Bernoulli(sigmoid f), independent over outputs; targets are 0 or 1 in the shape of the outputs.

    Outputs (N, 1) are for binary classification, (N, C) for C labels of which any number may apply, and (N, 1, H, W)
    for a binary mask.

    .. math:: \log p(y \mid f) = \sum_c \left[ y_c \log s(f_c) + (1 - y_c) \log s(-f_c) \right],
       \qquad \Lambda = \operatorname{diag}(s(f)\, s(-f))

    With ``grey=True`` a target y may be any number from 0 to 1, the probability of a 1, such as a grey pixel of MNIST.
    log p(y|f) is then the mean over binarised targets,

    .. math:: \mathbb{E}_{b \sim \text{Bernoulli}(y)} \log p(b \mid f),

    by the same formula: the binary cross entropy. It is not a density of y and not comparable with one; it is at most
    minus the entropy of the targets. For a density of grey values use ``ContinuousBernoulli``.

    Args:
        grey: Treat targets as probabilities of a 1. Predictive distributions are those of the binarised target, and
            their ``log_prob`` takes probabilities too.

    >>> Bernoulli().log_prob(torch.zeros(1, 1), torch.ones(1, 1))
    tensor([-0.6931])
    >>> Bernoulli(grey=True).log_prob(torch.ones(1, 1), torch.tensor([[0.25]]))
    tensor([-1.0633])
    """

    grey: bool = False
    links: ClassVar[tuple[str, ...]] = ("probit", "mc")
    saturates: ClassVar[bool] = True

    def log_prob(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, " N"]:
        y = y.to(f.dtype)
        yes = y.round()  # log s(±f) of the rounded target, exact for large |f|, and a linear term for fractional y
        terms = torch.addcmul(logsigmoid((2 * yes - 1) * f), y - yes, f)
        return by_datum(terms)

    def check(self, f: Float[Tensor, "N *C"], y: Tensor) -> None:
        super().check(f, y)
        if self.grey:
            require_unit_interval("Bernoulli(grey=True)", y)
        elif where := first_place((y != 0) & (y != 1)):
            value = y[where].item()
            way_out = (
                " Binarise the targets with torch.bernoulli(y), or keep them: as probabilities of a 1 with "
                "Bernoulli(grey=True), as grey values with ContinuousBernoulli()."
            )
            raise ValueError(
                f"target {value} at {where} of the batch is out of range: Bernoulli needs 0 or 1."
                f"{way_out if 0 < value < 1 else ''}"
            )

    def precision(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N *C"]:
        return torch.sigmoid(f) * torch.sigmoid(-f)

    def drawn(self, f: Float[Tensor, "S N *C"], generator: torch.Generator | None) -> Float[Tensor, "S N *C"]:
        return (uniform(f.shape, f, generator, axis=1) < torch.sigmoid(f)).to(f)

    def signed_root(
        self, f: Float[Tensor, "N *C"], y: Tensor, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N *C"]:
        return (0.5 * (logsigmoid(f) + logsigmoid(-f))).exp() * random_signs(f, generator, f.shape)

    def distribution(self, f: Float[Tensor, "N *C"]) -> BernoulliDistribution:
        return self._kind(logits=f)

    @property
    def _kind(self) -> type[BernoulliDistribution]:
        return GreyBernoulli if self.grey else BernoulliDistribution

    def response(self, f: Float[Tensor, "*S M E"]) -> Float[Tensor, "*S M E"]:
        return torch.sigmoid(f)

    def marginal(
        self, mean: Float[Tensor, "N *C"], covariance: Float[Tensor, "N ..."], link: Link, noise: bool = True
    ) -> BernoulliDistribution:
        probs = link(self, mean.reshape(-1, 1), covariance.reshape(-1, 1))
        return self._kind(probs=probs.reshape(mean.shape).clamp(0, 1))

    def mixture(self, f: Float[Tensor, "S N *C"], noise: bool = True) -> BernoulliDistribution:
        return self.mixture_of_parts([f])

    def mixture_of_parts(self, parts: Iterable[Tensor], noise: bool = True) -> BernoulliDistribution:
        probs, error = averaged(torch.sigmoid(f) for f in parts)
        return with_standard_error(self._kind(probs=probs.clamp(0, 1)), error)


class GreyBernoulli(BernoulliDistribution):
    """A Bernoulli distribution whose ``log_prob`` takes probabilities y of a 1 too: the mean over b ~ Bernoulli(y).

    >>> GreyBernoulli(probs=torch.tensor(0.5)).log_prob(torch.tensor(0.3))
    tensor(-0.6931)
    """

    support = constraints.unit_interval  # type: ignore[assignment]
