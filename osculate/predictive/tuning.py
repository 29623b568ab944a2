"""Prior precision and temperature on held-out data, with every pass over the network done once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log10
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution
from torch.utils._pytree import tree_leaves

from osculate.batches import Data, as_batches, number_of_batches
from osculate.likelihoods import Link
from osculate.posteriors import Gaussian, as_gaussian
from osculate.predictive.linearised import projections
from osculate.predictive.predict import choose_link
from osculate.progress import track
from osculate.registry import lookup

#: A loss of each datum, lower is better.
Loss = Callable[[Distribution, Tensor], Float[Tensor, " N"]]
#: Bytes of projected validation data that are kept; above it they are computed anew for each candidate.
MEMORY = 2 * 2**30
#: The coarse grid: decades on the prior precision, and temperatures.
DECADES = (-4, -3, -2, -1, 0, 1, 2, 3, 4)
TEMPERATURES = (-2.0, -1.0, 0.0, 0.5)
#: Refinement stops at this many decades.
FINEST = 0.05


def negative_log_likelihood(predictive: Distribution, y: Tensor) -> Float[Tensor, " N"]:
    """−log p(y|x), summed over outputs."""
    return -predictive.log_prob(y.to(torch.float) if isinstance(predictive, Bernoulli) else y).reshape(len(y), -1).sum(-1)


def brier(predictive: Distribution, y: Tensor) -> Float[Tensor, " N"]:
    """The squared distance of the probabilities from the one-hot target, summed over classes."""
    if isinstance(predictive, Categorical):
        target = torch.nn.functional.one_hot(y.long(), predictive.probs.shape[-1])
        return (predictive.probs - target).square().sum(-1)
    if isinstance(predictive, Bernoulli):
        return (predictive.probs - y).square().reshape(len(y), -1).sum(-1)
    raise ValueError(f"metric='brier' is for classes, the predictive is a {type(predictive).__name__}: use 'nll'.")


METRICS: dict[str, Loss] = {"nll": negative_log_likelihood, "brier": brier}


def tune(
    q: Any,
    validation: Data,
    metric: str | Loss = "nll",
    *,
    link: str | Link | None = None,
    temperature: bool = True,
    progress: bool = False,
) -> Gaussian:
    r"""The same posterior with prior precision and temperature chosen on held-out data.

    All precisions of the prior are multiplied by one factor s, and the likelihood is tempered by T, so that
    Λ = G/T + s diag(δ). A grid of decades is followed by a compass search down to 0.05 decades. The network is passed
    over the validation data once: only the contraction with the posterior is repeated for each candidate.

    Args:
        q: a Gaussian posterior.
        validation: held-out data, in any form that ``osc.laplace`` accepts.
        metric: "nll", "brier", or a function of (predictive, y) that gives one loss for each datum, lower is better.
        link: how probabilities are integrated; the default of ``osc.predict``.
        temperature: whether T is tuned too.
        progress: show a progress bar.

    Returns:
        A new posterior. A best value at the edge of the grid (no uncertainty helps, or any amount does) is kept, as
        the data's answer.

    Raises:
        TypeError: ``q`` is not a Gaussian posterior.
        ValueError: an unknown metric, data that do not fit, or no candidate with a finite loss.

    Cost: one predictive pass over the validation data, and about fifty contractions.

    >>> import osculate as osc
    >>> X, Y = torch.randn(40, 2), torch.randint(3, (40,))
    >>> q = osc.laplace(torch.nn.Linear(2, 3), osc.likelihoods.Categorical(), (X[:20], Y[:20]), prior=1.0)
    >>> osc.tune(q, (X[20:], Y[20:])).prior.precision.ndim
    0
    """
    q = as_gaussian(q, "tune")
    loss = lookup("metric", metric, METRICS) if isinstance(metric, str) else metric
    held_out = _Validation(q, validation, progress)
    chosen = choose_link(q.likelihood, link)
    search = _Search(lambda point: held_out.loss(_at(q, *point), chosen, loss))
    temperatures = TEMPERATURES if temperature else (log10(float(q.temperature)),)
    grid = [(float(decade), t) for t in temperatures for decade in DECADES]
    best = min(track(grid, "tuning", len(grid), progress), key=search)
    if not search(best) < float("inf"):
        raise ValueError("no candidate gave a finite loss on the validation data: check its targets and the metric.")
    return _at(q, *search.refine(best, axes=2 if temperature else 1))


def _at(q: Gaussian, decades: float, log_temperature: float) -> Gaussian:
    prior = q.prior.with_precision(q.prior.precision * 10**decades)
    return q.replace(prior=prior, temperature=10**log_temperature)


class _Search:
    """A function of a point that remembers its values, and a compass search."""

    def __init__(self, function: Callable[[tuple[float, float]], float]) -> None:
        self._function = function
        self._values: dict[tuple[float, float], float] = {}

    def __call__(self, point: tuple[float, float]) -> float:
        if point not in self._values:
            value = self._function(point)
            self._values[point] = value if value == value else float("inf")
        return self._values[point]

    def refine(self, best: tuple[float, float], axes: int) -> tuple[float, float]:
        """Step along each axis while it helps, with steps halved down to FINEST decades."""
        step = 0.5
        while step >= FINEST:
            around = [(best[0] + d, best[1]) for d in (-step, step)]
            around += [(best[0], best[1] + d) for d in (-step, step)] if axes == 2 else []
            nearest = min(around, key=self)
            if self(nearest) < self(best) and abs(nearest[0]) <= 6 and abs(nearest[1]) <= 6:
                best = nearest
            else:
                step /= 2
        return best


@dataclass
class _Validation:
    """Held-out data with what the predictive needs of them, independent of the prior."""

    q: Gaussian
    data: Data
    progress: bool

    def __post_init__(self) -> None:
        self._kept: list[tuple[Tensor, list[Any], Tensor]] | None = []
        size = 0
        batches = track(as_batches(self.data), "validation pass", number_of_batches(self.data), self.progress)
        for part in self._project(batches):
            size += sum(leaf.numel() * leaf.itemsize for leaf in tree_leaves(part) if isinstance(leaf, Tensor))
            if size > MEMORY:
                self._kept = None
                return
            self._kept.append(part)

    def _project(self, batches: Iterator[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, list[Any], Tensor]]:
        for x, y in batches:
            start = 0
            for f, projected in projections(self.q, x, diagonal=False):
                targets = y[start : start + len(f)].to(f.device)
                self.q.likelihood.check(f, targets)
                start += len(f)
                yield f, projected, targets

    def loss(self, q: Gaussian, link: Link, loss: Loss) -> float:
        """The mean loss of a posterior that shares everything but prior and temperature."""
        total, count = 0.0, 0
        for f, projected, y in self._kept if self._kept is not None else self._project(as_batches(self.data)):
            try:
                covariance = q.precision.contract(projected, diagonal=False)
                predictive = q.likelihood.marginal(f, covariance, link)
            except ValueError:
                return float("inf")  # a precision that cannot be factorised: no candidate
            total += float(loss(predictive, y).sum())
            count += len(y)
        return total / count
