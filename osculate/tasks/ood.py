"""Out-of-distribution detection: does the posterior notice inputs that it knows nothing about?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution

from osculate import metrics
from osculate.posteriors import Gaussian
from osculate.predictive import functional_variance
from osculate.registry import lookup
from osculate.tasks._predictions import in_closed_form, predictions

#: A score of each input; the higher, the more likely out of distribution.
Score = Callable[[Any, Tensor, Distribution], Tensor]


@dataclass(frozen=True, eq=False)
class OODRecord:
    """What :func:`ood` finds.

    Args:
        inside: scores of the in-distribution inputs, by name of the score.
        outside: scores of the others, by name of the set and of the score.
        auroc: how well each score tells the two apart, by name of the set and of the score: 0.5 is chance, 1
            perfect.
    """

    inside: Mapping[str, Tensor]
    outside: Mapping[str, Mapping[str, Tensor]]
    auroc: Mapping[str, Mapping[str, float]]

    def metrics(self) -> dict[str, float]:
        """Every AUROC under the name ``auroc/<set>/<score>``."""
        return {f"auroc/{name}/{score}": v for name, scores in self.auroc.items() for score, v in scores.items()}


def entropy(q: Any, x: Tensor, predictive: Distribution) -> Float[Tensor, " N"]:
    """Entropy of the predictive in nats, summed over outputs: 0 for a sure class, log C for no idea.

    Raises:
        ValueError: the predictive has no entropy in closed form.
    """
    found = in_closed_form(predictive.entropy)
    if found is None:
        raise ValueError(
            f"the predictive, a {type(predictive).__name__}, has no entropy in closed form: take the score"
            " 'functional_variance' of a Laplace posterior instead, or via='linearised' where the likelihood is"
            " Gaussian"
        )
    return found.reshape(len(x), -1).sum(1)


def max_probability(q: Any, x: Tensor, predictive: Distribution) -> Float[Tensor, " N"]:
    """One minus the probability of the most probable class (of all outputs together, where there are
    several).

    Raises:
        ValueError: the predictive is not one of classes.
    """
    if isinstance(predictive, Categorical):
        top = predictive.probs.amax(-1)
    elif isinstance(predictive, Bernoulli):
        top = torch.maximum(predictive.probs, 1 - predictive.probs)
    else:
        raise ValueError(
            f"the score 'max_probability' needs classes, but the predictive is a {type(predictive).__name__}; use"
            " 'entropy' or 'functional_variance'"
        )
    return 1 - top.reshape(len(x), -1).prod(1)


def total_variance(q: Any, x: Tensor, predictive: Distribution) -> Float[Tensor, " N"]:
    """Trace of the covariance of the network's outputs f(x) under the posterior, without observation noise.

    Raises:
        TypeError: the posterior has no functional variance: a point has none.
    """
    return functional_variance(_posterior(q), x, diagonal=True).flatten(1).sum(1)


#: Scores by name.
SCORES: Mapping[str, Score] = {
    "entropy": entropy,
    "max_probability": max_probability,
    "functional_variance": total_variance,
}


def ood(
    q: Any,
    inside: Tensor,
    outside: Tensor | Mapping[str, Tensor],
    *,
    scores: Sequence[str] | None = None,
    batch_size: int = 500,
    progress: bool = False,
    **predict_options: Any,
) -> OODRecord:
    """Score inputs from inside and outside the training distribution, and measure how well each score
    separates them.

    Args:
        q: anything that ``osculate.predict`` takes.
        inside: in-distribution inputs (N, …), from the test part.
        outside: other inputs (M, …), or several such sets by name.
        scores: keys of :data:`SCORES`; None takes all that this posterior and its likelihood have (a point
            has no functional variance, real-valued targets no most probable class, a mixture and counts no entropy
            in closed form).
        batch_size: rows at a time.
        progress: whether to show a progress bar.
        **predict_options: passed to ``osculate.predict``, for example ``link="probit"``.

    Raises:
        ValueError: an unknown score, an empty set, a score that does not fit the likelihood, or no score that does.
        TypeError: the functional variance of a posterior that has none.

    >>> import osculate as osc
    >>> q = osc.posteriors.Point(torch.nn.Linear(2, 3), osc.likelihoods.Categorical())
    >>> ood(q, torch.randn(5, 2), torch.randn(5, 2)).metrics().keys()
    dict_keys(['auroc/outside/entropy', 'auroc/outside/max_probability'])
    """
    others = {"outside": outside} if isinstance(outside, Tensor) else dict(outside)
    if not others:
        raise ValueError("there is no set of outside inputs to tell apart; pass a tensor, or tensors by name")
    wanted = _default_scores(q, inside, predict_options) if scores is None else tuple(scores)
    chosen = {name: lookup("score", name, SCORES) for name in wanted}
    found = {
        name: _scored(q, x, chosen, batch_size, progress, name, predict_options)
        for name, x in {"": inside, **others}.items()
    }
    within = found.pop("")
    auroc = {
        name: {score: metrics.auroc(within[score], values[score]) for score in chosen} for name, values in found.items()
    }
    return OODRecord(within, found, auroc)


def _scored(
    q: Any, x: Tensor, scores: Mapping[str, Score], batch_size: int, progress: bool, name: str, options: dict[str, Any]
) -> dict[str, Tensor]:
    """Every score of every input, on the CPU."""
    pieces: dict[str, list[Tensor]] = {score: [] for score in scores}
    rows = (x, torch.zeros(len(x)))  # no target is needed
    for predictive, part, _ in predictions(q, rows, batch_size, progress, f"scoring {name or 'inside'}", options):
        for score, function in scores.items():
            pieces[score].append(function(q, part, predictive).cpu())
    return {score: torch.cat(values) for score, values in pieces.items()}


def _default_scores(q: Any, inside: Tensor, options: dict[str, Any]) -> tuple[str, ...]:
    (predictive, _, _), *_ = predictions(q, (inside[:2], torch.zeros(len(inside[:2]))), 2, False, "", options)
    fitting = {
        "entropy": in_closed_form(predictive.entropy) is not None,
        "max_probability": isinstance(predictive, Categorical | Bernoulli),
        "functional_variance": isinstance(_posterior(q), Gaussian),
    }
    if not any(fitting.values()):
        raise ValueError(
            f"none of the scores {', '.join(map(repr, SCORES))} fits: the predictive, a {type(predictive).__name__},"
            f" has no entropy in closed form and no classes, and a {type(_posterior(q)).__name__} no functional"
            " variance. Fit a Laplace posterior, or compare a score of your own, such as the variance of"
            " osc.predict(q, x), by osc.metrics.auroc"
        )
    return tuple(name for name, fits in fitting.items() if fits)


def _posterior(q: Any) -> Any:
    """The posterior itself, where the result of a training was given."""
    return getattr(q, "posterior", q)
