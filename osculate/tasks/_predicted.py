"""Scores by the predictive distribution of a classifier or a regression network."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution

from osculate.posteriors import as_posterior
from osculate.predictive import functional_variance
from osculate.tasks._predictions import in_closed_form, predictions
from osculate.tasks._scored import Score, Views, mean_pixel


@dataclass(frozen=True, eq=False)
class Predicted:
    """A batch and its predictive.

    Args:
        q: the posterior.
        x: inputs (N, …).
        predictive: p(y|x).
    """

    q: Any
    x: Tensor
    predictive: Distribution


def entropy(view: Predicted) -> Float[Tensor, " N"]:
    """Entropy of the predictive in nats, summed over outputs: 0 for a sure class, log C for no idea.

    Raises:
        ValueError: the predictive has no entropy in closed form.
    """
    found = in_closed_form(view.predictive.entropy)
    if found is None:
        raise ValueError(
            f"the predictive, a {type(view.predictive).__name__}, has no entropy in closed form: take the score"
            " 'functional_variance' of a Laplace posterior instead, or via='linearised' where the likelihood is"
            " Gaussian"
        )
    return found.reshape(len(view.x), -1).sum(1)


def max_probability(view: Predicted) -> Float[Tensor, " N"]:
    """One minus the probability of the most probable class (of all outputs together, where there are
    several).

    Raises:
        ValueError: the predictive is not one of classes.
    """
    predictive = view.predictive
    if isinstance(predictive, Categorical):
        top = predictive.probs.amax(-1)
    elif isinstance(predictive, Bernoulli):
        top = torch.maximum(predictive.probs, 1 - predictive.probs)
    else:
        raise ValueError(
            f"the score 'max_probability' needs classes, but the predictive is a {type(predictive).__name__}; use"
            " 'entropy' or 'functional_variance'"
        )
    return 1 - top.reshape(len(view.x), -1).prod(1)


def total_variance(view: Predicted) -> Float[Tensor, " N"]:
    """Trace of the covariance of the network's outputs f(x) under the posterior, without observation noise.

    Raises:
        TypeError: the posterior has no functional variance: a point has none.
    """
    return functional_variance(as_posterior(view.q), view.x, diagonal=True).flatten(1).sum(1)


class Predictives(Views):
    """Predictives of a posterior.

    Args:
        q: anything that ``osculate.predict`` takes.
        batch_size: rows at a time.
        progress: show progress bars.
        options: options of ``osculate.predict``.
    """

    known: ClassVar[Mapping[str, Score]] = {
        "entropy": entropy,
        "max_probability": max_probability,
        "functional_variance": total_variance,
        "mean_pixel": mean_pixel,
    }

    def __init__(self, q: Any, batch_size: int, progress: bool, options: dict[str, Any]) -> None:
        self.q, self.batch_size, self.progress, self.options = q, batch_size, progress, options

    def of(self, x: Tensor, title: str) -> Iterator[Predicted]:
        rows = (x, torch.zeros(len(x)))  # no target is needed
        for predictive, part, _ in predictions(self.q, rows, self.batch_size, self.progress, title, self.options):
            yield Predicted(self.q, part, predictive)

    def fitting(self, inside: Tensor) -> dict[str, bool]:
        rows = (inside[:2], torch.zeros(len(inside[:2])))
        (predictive, _, _), *_ = predictions(self.q, rows, 2, False, "", self.options)
        found = {
            "entropy": in_closed_form(predictive.entropy) is not None,
            "max_probability": isinstance(predictive, Categorical | Bernoulli),
            "functional_variance": "linearised" in as_posterior(self.q).ways,
        }
        if not any(found.values()):
            raise ValueError(
                f"none of the scores {', '.join(map(repr, found))} fits: the predictive, a"
                f" {type(predictive).__name__}, has no entropy in closed form and no classes, and a"
                f" {type(as_posterior(self.q)).__name__} no functional variance. Fit a Laplace posterior, or compare a"
                " score of your own, such as the variance of osc.predict(q, x), by osc.metrics.auroc"
            )
        return found
