"""Yes or no, by the sigmoid of one logit: one target or many."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Bernoulli as BernoulliDistribution
from torch.nn.functional import logsigmoid

from osculate.likelihoods._base import Link, averaged, drawn_on, random_signs
from osculate.likelihoods._elementwise import Elementwise


@dataclass(frozen=True, eq=False)
class Bernoulli(Elementwise):
    r"""y ~ Bernoulli(sigmoid f), independent over outputs; targets are 0 or 1 in the shape of the outputs.

    One logit is a yes-or-no question, (N, C) is C labels of which any number may apply, (N, 1, H, W) a binary mask.

    .. math:: \log p(y \mid f) = \sum_c \left[ y_c \log s(f_c) + (1 - y_c) \log s(-f_c) \right],
       \qquad \Lambda = \operatorname{diag}(s(f)\, s(-f))

    >>> Bernoulli().log_prob(torch.zeros(1, 1), torch.ones(1, 1))
    tensor([-0.6931])
    """

    links: ClassVar[tuple[str, ...]] = ("probit", "mc")

    def log_prob(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, " N"]:
        terms = y * logsigmoid(f) + (1 - y.to(f.dtype)) * logsigmoid(-f)
        return terms.reshape(len(f), -1).sum(-1)

    def check(self, f: Float[Tensor, "N *C"], y: Tensor) -> None:
        super().check(f, y)
        wrong = ((y != 0) & (y != 1)).nonzero()
        if len(wrong):
            where = tuple(int(i) for i in wrong[0])
            raise ValueError(
                f"target {y[where].item()} at {where} of the batch is out of range: Bernoulli needs 0 or 1."
            )

    def precision(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N *C"]:
        return torch.sigmoid(f) * torch.sigmoid(-f)

    def score(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N *C"]:
        return y.to(f.dtype) - torch.sigmoid(f)

    def sampled_root(
        self, f: Float[Tensor, "N *C"], y: Tensor, samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "V N *C"]:
        p = torch.sigmoid(f).expand(samples, *f.shape)
        drawn = torch.bernoulli(p.to(drawn_on(f, generator)), generator=generator)
        return (drawn.to(f.device) - p) / samples**0.5

    def signed_root(
        self, f: Float[Tensor, "N *C"], y: Tensor, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N *C"]:
        return (0.5 * (logsigmoid(f) + logsigmoid(-f))).exp() * random_signs(f, generator, f.shape)

    def distribution(self, f: Float[Tensor, "N *C"]) -> BernoulliDistribution:
        return BernoulliDistribution(logits=f)

    def response(self, f: Float[Tensor, "*S M E"]) -> Float[Tensor, "*S M E"]:
        return torch.sigmoid(f)

    def marginal(
        self, mean: Float[Tensor, "N *C"], covariance: Float[Tensor, "N ..."], link: Link, noise: bool = True
    ) -> BernoulliDistribution:
        probs = link(self, mean.reshape(-1, 1), covariance.reshape(-1, 1))
        return BernoulliDistribution(probs=probs.reshape(mean.shape).clamp(0, 1))

    def mixture(self, f: Float[Tensor, "S N *C"], noise: bool = True) -> BernoulliDistribution:
        return self.mixture_of_parts([f])

    def mixture_of_parts(self, parts: Iterable[Tensor], noise: bool = True) -> BernoulliDistribution:
        return BernoulliDistribution(probs=averaged(torch.sigmoid(f) for f in parts))
