"""One of C classes, by the softmax of C logits: one label for each datum, token or pixel."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Categorical as CategoricalDistribution

from osculate.likelihoods._base import Likelihood, Link, averaged, by_datum, random_signs, with_standard_error
from osculate.randomness import uniform

#: Largest distance of the sum of a target's probabilities from one.
SUMS = 1e-3
#: Number of classes up to which a softmax is quicker over an axis in front, where entries of all data are neighbours.
SHORT = 32


@dataclass(frozen=True, eq=False)
class Categorical(Likelihood):
    r"""y ~ Categorical(softmax f) at each position, targets as class indices 0 … C − 1.

    .. math:: \log p(y \mid f) = f_y - \log \sum_c e^{f_c}, \qquad \Lambda = \operatorname{diag}(p) - p p^\top

    Logits have shape (N, C) for one label per datum, (N, T, V) for a label at each of T tokens, or (N, C, H, W) with
    ``class_axis=1`` for one at each pixel; targets have this shape without the class axis. Predictive distributions
    have the class axis last. Targets may also be probabilities of the classes, in the shape of the logits, as teachers
    and mixtures of data give them: log p is then their average, and Λ does not depend on them.

    Args:
        class_axis: Axis of the logits that runs over classes, counting the batch axis.
        ignore_index: Target of positions without label (padding), which contribute nothing.

    Raises:
        ValueError: ``class_axis`` is the batch axis.

    >>> Categorical().log_prob(torch.zeros(1, 4), torch.tensor([2]))
    tensor([-1.3863])
    >>> Categorical(class_axis=1, ignore_index=-1).log_prob(torch.zeros(1, 4, 1, 2), torch.tensor([[[2, -1]]]))
    tensor([-1.3863])
    """

    class_axis: int = -1
    ignore_index: int | None = None
    interacts: ClassVar[str] = "axis"
    saturates: ClassVar[bool] = True
    links: ClassVar[tuple[str, ...]] = ("mc", "probit", "bridge", "mean_field")

    def __post_init__(self) -> None:
        if self.class_axis == 0:
            raise ValueError("class_axis=0 is the batch axis: classes are on a later one, such as 1 or -1.")

    def _classes_last(self, f: Tensor, leading: int = 0) -> Float[Tensor, "... C"]:
        return f.movedim(leading + self._axis(f.ndim - leading), -1)

    def _labels(self, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """Valid class indices or probabilities, and a mask of the positions with a label (None for all)."""
        if y.is_floating_point():
            return y, None
        if self.ignore_index is None:
            return y.long(), None
        kept = y != self.ignore_index
        return torch.where(kept, y.long(), 0), kept

    def _kept(self, y: Tensor, t: Float[Tensor, "*V N T E"]) -> Float[Tensor, "*V N T E"]:
        """Zero at positions without label."""
        kept = self._labels(y)[1]
        return t if kept is None else torch.where(kept.reshape(len(y), -1, 1), t, 0)

    def log_prob(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, " N"]:
        logs, (labels, kept) = self._classes_last(f).log_softmax(-1), self._labels(y)
        if y.is_floating_point():
            return by_datum(self._classes_last(y) * logs)
        terms = logs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        if kept is not None:
            terms = torch.where(kept, terms, 0)
        return by_datum(terms)

    def check(self, f: Float[Tensor, "N *C"], y: Tensor) -> None:
        if f.ndim < 2:
            raise ValueError(f"Categorical needs logits of shape (N, C), the network returned {tuple(f.shape)}.")
        classes = self.events(f)
        if classes < 2:
            raise ValueError("Categorical needs at least two logits; for one logit use Bernoulli.")
        if y.is_floating_point() and y.shape == f.shape:
            self._check_probabilities(self._classes_last(y))
            return
        if y.is_floating_point() or y.dtype == torch.bool or y.is_complex():
            raise TypeError(
                f"Categorical needs integer class indices, got {y.dtype}. Convert indices with y.long(), one-hot "
                "rows with y.argmax(-1), or pass probabilities in the shape of the logits; for real-valued targets use "
                "Gaussian."
            )
        self._check_shape(f, y)
        labels, kept = self._labels(y)
        wrong = ((labels < 0) | (labels >= classes)).nonzero()
        if len(wrong):
            where = tuple(int(i) for i in wrong[0])
            place = f"row {where[0]}" if len(where) == 1 else f"position {where}"
            ways = " Number the classes one after another, as torch.unique(y, return_inverse=True)[1] does"
            way_out = ways + ("." if kept is not None else ", or mark positions without a label with ignore_index.")
            raise ValueError(
                f"target {int(y[where])} in {place} of the batch is out of range: the network has {classes} "
                f"logits, so classes are 0 to {classes - 1}.{way_out}"
            )

    def _check_probabilities(self, y: Float[Tensor, "... C"]) -> None:
        wrong = ((y < 0).any(-1) | ((y.sum(-1) - 1).abs() > SUMS)).nonzero()
        if len(wrong):
            where = tuple(int(i) for i in wrong[0])
            raise ValueError(
                f"the target at {where} of the batch is no distribution over classes, {y[where].tolist()}: "
                "probabilities are not negative and sum to one. For labels pass integer class indices."
            )

    def _check_shape(self, f: Tensor, y: Tensor) -> None:
        expected = tuple(self._classes_last(f).shape[:-1])
        if y.shape == expected:
            return
        for axis in range(1, f.ndim):
            if tuple(y.shape) == (*f.shape[:axis], *f.shape[axis + 1 :]):
                raise ValueError(
                    f"Categorical with class_axis={self.class_axis} needs targets of shape {expected} for logits "
                    f"{tuple(f.shape)}, got {tuple(y.shape)}. If the classes are on axis {axis}, use "
                    f"Categorical(class_axis={axis})."
                )
        raise ValueError(
            f"Categorical needs targets of shape (N,), got {tuple(y.shape)} for logits {tuple(f.shape)}: class "
            "indices, not one-hot rows (use y.argmax(-1)) and without a trailing axis (use y.squeeze(-1))."
            if f.ndim == 2
            else f"Categorical needs targets of shape {expected} for logits {tuple(f.shape)} with classes on axis "
            f"{self.class_axis}, got {tuple(y.shape)}: one class index at each position. For one label per datum "
            "the network must return (N, C)."
        )

    def local_hessian(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N T E E"]:
        self.require_room(f)
        p = self._kept(y, self.split(f).softmax(-1))
        return p.diag_embed() - p.unsqueeze(-1) * p.unsqueeze(-2)

    def local_diagonal(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N T E"]:
        p = self._kept(y, self.split(f).softmax(-1))
        return p * (1 - p)

    def local_root(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "V N T E"]:
        count, part = self.local_columns(f, y)
        return part(0, count)

    def local_columns(self, f: Float[Tensor, "N *C"], y: Tensor) -> tuple[int, Callable[[int, int], Tensor]]:
        r"""The C − 1 columns of the Cholesky factor of diag(p) − ppᵀ, in closed form, each from p alone.

        With tails q_k = Σ_{j>k} p_j (q_{−1} = 1): L_kk = √(p_k q_k / q_{k−1}) and, for i > k,
        L_ik = −p_i √(p_k / (q_{k−1} q_k)). The last column is zero, since Λ has rank C − 1.
        """
        p = self._kept(y, self.split(f).softmax(-1))
        tails = p.flip(-1).cumsum(-1).flip(-1)  # Σ_{j≥k} p_j = q_{k−1}
        tiny = torch.finfo(p.dtype).tiny

        def part(start: int, stop: int) -> Float[Tensor, "V N T E"]:
            before, after = tails[..., start:stop], tails[..., start + 1 : stop + 1]
            diagonal = (p[..., start:stop] * after / before.clamp(min=tiny)).sqrt()
            columns = p.unsqueeze(-2) / after.clamp(min=tiny).unsqueeze(-1)  # p_i / q_k, at most 1 where i > k
            columns.mul_(-diagonal.unsqueeze(-1)).triu_(start + 1)
            columns.diagonal(start, dim1=-2, dim2=-1).copy_(diagonal)
            return columns.movedim(-2, 0)

        return p.shape[-1] - 1, part

    def score(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N *C"]:
        if y.is_floating_point():
            return y - self.merge(self.split(f).softmax(-1), f.shape)
        labels = self._labels(y)[0].reshape(len(f), -1, 1)
        return self.merge(self._kept(y, _one_hot_minus(self.split(f).softmax(-1), labels)), f.shape)

    def sampled_root(
        self, f: Float[Tensor, "N *C"], y: Tensor, samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "V N *C"]:
        p = self.split(f).softmax(-1)
        steps = p.cumsum(-1)  # inverse distribution function: one random number per label
        levels = uniform((*p.shape[:2], samples), steps, generator) * steps[..., -1:]
        drawn = torch.searchsorted(steps, levels, right=True)
        labels = drawn.clamp_(max=p.shape[-1] - 1).movedim(-1, 0).unsqueeze(-1)
        return self.merge(self._kept(y, _one_hot_minus(p.expand(samples, *p.shape), labels)), f.shape) / samples**0.5

    def signed_root(
        self, f: Float[Tensor, "N *C"], y: Tensor, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N *C"]:
        """√p ∘ ε − p (√p · ε), with roots by half the logarithms: a probability of zero has a derivative."""
        logs = self.split(f).log_softmax(-1)
        root = (0.5 * logs).exp() * random_signs(f, generator, logs.shape)
        return self.merge(self._kept(y, root - logs.exp() * root.sum(-1, keepdim=True)), f.shape)

    def distribution(self, f: Float[Tensor, "N *C"]) -> CategoricalDistribution:
        return CategoricalDistribution(logits=self._classes_last(f))

    def response(self, f: Float[Tensor, "*S M E"]) -> Float[Tensor, "*S M E"]:
        if f.shape[-1] > SHORT:
            return f.softmax(-1)
        return f.movedim(-1, 0).softmax(0).movedim(0, -1)

    def marginal(
        self, mean: Float[Tensor, "N *C"], covariance: Float[Tensor, "N ..."], link: Link, noise: bool = True
    ) -> CategoricalDistribution:
        logits = self._classes_last(mean)
        classes = logits.shape[-1]
        if self.needs_covariance(link):
            covariance = covariance.reshape(-1, classes, classes)
        else:
            covariance = self._classes_last(covariance.reshape(mean.shape)).reshape(-1, classes)
        probs = link(self, logits.reshape(-1, classes), covariance)
        return CategoricalDistribution(probs=probs.reshape(logits.shape))

    def mixture(self, f: Float[Tensor, "S N *C"], noise: bool = True) -> CategoricalDistribution:
        return self.mixture_of_parts([f])

    def mixture_of_parts(self, parts: Iterable[Tensor], noise: bool = True) -> CategoricalDistribution:
        probs, error = averaged(self._classes_last(f, leading=1).softmax(-1) for f in parts)
        return with_standard_error(CategoricalDistribution(probs=probs), error)

    def counted(self, y: Tensor) -> Bool[Tensor, "..."] | None:
        return self._labels(y)[1]


def _one_hot_minus(p: Float[Tensor, "... C"], labels: Tensor) -> Float[Tensor, "... C"]:
    """One-hot rows of these labels minus the probabilities, without the one-hot rows."""
    return p.neg().scatter_add(-1, labels, torch.ones_like(labels, dtype=p.dtype))
