"""Losses of a predictive for each datum; lower is better."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution


def negative_log_likelihood(predictive: Distribution, y: Tensor, counted: Tensor | None = None) -> Float[Tensor, " N"]:
    """−log p(y|x), summed over the targets of each datum that are counted."""
    if isinstance(predictive, Categorical) and _is_soft(predictive, y):
        return _summed(-(y * predictive.logits).sum(-1), counted)
    y = y.to(predictive.probs.dtype) if isinstance(predictive, Bernoulli) else y
    return _summed(-predictive.log_prob(_scorable(y, counted)), counted)


def brier(predictive: Distribution, y: Tensor, counted: Tensor | None = None) -> Float[Tensor, " N"]:
    """The squared distance of the probabilities from the one-hot target, summed over classes and counted targets."""
    if isinstance(predictive, Categorical):
        classes = predictive.probs.shape[-1]
        target = y if _is_soft(predictive, y) else torch.nn.functional.one_hot(_scorable(y, counted).long(), classes)
        return _summed((predictive.probs - target).square().sum(-1), counted)
    if isinstance(predictive, Bernoulli):
        return _summed((predictive.probs - y.to(predictive.probs.dtype)).square(), counted)
    raise ValueError(f"metric='brier' needs classes, got a predictive {type(predictive).__name__}: use 'nll'.")


def _is_soft(predictive: Distribution, y: Tensor) -> bool:
    """True for targets that are probabilities of classes."""
    return isinstance(predictive, Categorical) and y.is_floating_point() and y.shape == predictive.probs.shape


def _scorable(y: Tensor, counted: Tensor | None) -> Tensor:
    """The targets, with 0 in place of ignored ones."""
    return y if counted is None else torch.where(counted, y, 0)


def _summed(terms: Float[Tensor, "N ..."], counted: Tensor | None) -> Float[Tensor, " N"]:
    """The sum of the counted terms of each datum."""
    terms = terms if counted is None else torch.where(counted, terms, 0)
    return terms.reshape(len(terms), -1).sum(-1)
