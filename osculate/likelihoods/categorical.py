"""One of C classes, by the softmax of C logits."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Categorical as CategoricalDistribution
from torch.nn.functional import one_hot

from osculate.likelihoods._base import Likelihood, Link


@dataclass(frozen=True, eq=False)
class Categorical(Likelihood):
    r"""y ~ Categorical(softmax f), targets as class indices 0 … C − 1.

    .. math:: \log p(y \mid f) = f_y - \log \sum_c e^{f_c}, \qquad \Lambda = \operatorname{diag}(p) - p p^\top

    >>> Categorical().log_prob(torch.zeros(1, 4), torch.tensor([2]))
    tensor([-1.3863])
    """

    links: ClassVar[tuple[str, ...]] = ("mc", "probit", "bridge", "mean_field")

    def log_prob(self, f: Float[Tensor, "N C"], y: Tensor) -> Float[Tensor, " N"]:
        return f.log_softmax(-1).gather(-1, y.long().unsqueeze(-1)).squeeze(-1)

    def check(self, f: Float[Tensor, "N *C"], y: Tensor) -> None:
        if f.ndim != 2:
            raise ValueError(f"Categorical needs logits of shape (N, C), the network returned {tuple(f.shape)}.")
        if f.shape[1] < 2:
            raise ValueError("Categorical needs at least two logits; for one logit use Bernoulli.")
        if y.is_floating_point() or y.dtype == torch.bool or y.is_complex():
            raise TypeError(
                f"Categorical needs integer class indices, got {y.dtype}. Convert indices with y.long(), one-hot "
                "rows with y.argmax(-1); for real-valued targets use Gaussian."
            )
        if y.ndim != 1:
            raise ValueError(
                f"Categorical needs targets of shape (N,), got {tuple(y.shape)}: class indices, not one-hot rows "
                "(use y.argmax(-1)) and without a trailing axis (use y.squeeze(-1))."
            )
        wrong = ((y < 0) | (y >= f.shape[1])).nonzero()
        if len(wrong):
            row = int(wrong[0])
            raise ValueError(
                f"target {int(y[row])} in row {row} of the batch is out of range: the network has {f.shape[1]} "
                f"logits, so classes are 0 to {f.shape[1] - 1}."
            )

    def hessian(self, f: Float[Tensor, "N C"], y: Tensor) -> Float[Tensor, "N C C"]:
        p = f.softmax(-1)
        return p.diag_embed() - p.unsqueeze(-1) * p.unsqueeze(-2)

    def root(self, f: Float[Tensor, "N C"], y: Tensor) -> Float[Tensor, "V N C"]:
        r"""The C − 1 columns of the Cholesky factor of diag(p) − ppᵀ, in closed form.

        With tails q_k = Σ_{j>k} p_j (q_{−1} = 1): L_kk = √(p_k q_k / q_{k−1}) and, for i > k,
        L_ik = −p_i √(p_k / (q_{k−1} q_k)). The last column is zero, since Λ has rank C − 1.
        """
        p = f.softmax(-1)
        tails = p.flip(-1).cumsum(-1).flip(-1)  # Σ_{j≥k} p_j = q_{k−1}
        before, after = tails[:, :-1], tails[:, 1:]
        tiny = torch.finfo(p.dtype).tiny
        diagonal = (p[:, :-1] * after / before.clamp(min=tiny)).sqrt()
        share = p.unsqueeze(1) / after.clamp(min=tiny).unsqueeze(-1)  # p_i / q_k, at most 1 where i > k
        columns = (-share * diagonal.unsqueeze(-1)).triu(1)
        columns.diagonal(dim1=-2, dim2=-1).copy_(diagonal)
        return columns.movedim(1, 0)

    def sampled_root(
        self, f: Float[Tensor, "N C"], y: Tensor, samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "V N C"]:
        p = f.softmax(-1)
        labels = torch.multinomial(p, samples, replacement=True, generator=generator)
        return (one_hot(labels.T, f.shape[-1]) - p) / samples**0.5

    def distribution(self, f: Float[Tensor, "N C"]) -> CategoricalDistribution:
        return CategoricalDistribution(logits=f)

    def response(self, f: Float[Tensor, "*S N C"]) -> Float[Tensor, "*S N C"]:
        return f.softmax(-1)

    def marginal(
        self,
        mean: Float[Tensor, "N C"],
        covariance: Float[Tensor, "N C C"] | Float[Tensor, "N C"],
        link: Link,
        noise: bool = True,
    ) -> CategoricalDistribution:
        return CategoricalDistribution(probs=link(self, mean, covariance))

    def mixture(self, f: Float[Tensor, "S N C"], noise: bool = True) -> CategoricalDistribution:
        return CategoricalDistribution(probs=self.response(f).mean(0))
