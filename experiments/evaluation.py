"""Predictives of classes and numbers, scored; and differences of scores with the error that the test set leaves."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Categorical, Distribution

from experiments.runner import ignoring
from osculate import metrics
from osculate.data.dataset import Part
from osculate.memory import budget
from osculate.posteriors import Gaussian, Point, Posterior
from osculate.posteriors.linearised import interacting_outputs, projections
from osculate.predictive import predict
from osculate.predictive.predict import choose_link
from osculate.progress import track

#: The warning about sampled networks that are far worse than the mode, where this is what is measured.
SAMPLED = "networks sampled from this posterior"
#: Bins of the calibration error, as in [immer2021].
BINS = 10
#: Columns of regressions, and standard deviations of a central interval of 95 %.
LOG_LIKELIHOOD, RMSE, COVERAGE = "log likelihood, nats", "RMSE", "coverage of 95 % intervals"
LIMIT = 1.96
#: Data that pass through a network at once where a progress bar counts them.
ROWS = 50


@dataclass(frozen=True)
class Difference:
    """A mean difference and its standard error.

    Args:
        value: Mean.
        error: Standard error over the test data (and seeds).
    """

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:+.3f} ± {self.error:.3f}"

    @classmethod
    def over(cls, each: Sequence["Difference"]) -> "Difference":
        """Return the mean of several differences, each with independent data."""
        return cls(sum(d.value for d in each) / len(each), sqrt(sum(d.error**2 for d in each)) / len(each))


def scores(probs: Float[Tensor, "N C"], targets: Tensor) -> dict[str, float]:
    """Return accuracy in percent, NLL in nats, and ECE."""
    return {
        "accuracy, %": 100 * metrics.accuracy(probs, targets),
        "NLL": metrics.nll(logs(probs), targets),
        "ECE": metrics.ece(probs, targets, BINS),
    }


def of_numbers(q: Posterior, part: Part) -> dict[str, float]:
    """Return the scores of a regression with a normal predictive."""
    x, y = part
    predictive = predict(q, x)
    inside = (y - predictive.mean).abs() < LIMIT * predictive.stddev
    return {
        LOG_LIKELIHOOD: float(predictive.log_prob(y).mean()),
        RMSE: float((predictive.mean - y).square().mean().sqrt()),
        COVERAGE: float(inside.float().mean()),
    }


def logs(probs: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    """Return logarithms in float32, in which a probability of zero costs 87 nats."""
    return probs.clamp_min(torch.finfo(torch.float32).tiny).log()


def probabilities(predictive: Distribution) -> Float[Tensor, "N C"]:
    """Return the class probabilities of a predictive."""
    assert isinstance(predictive, Categorical)
    return predictive.probs


def class_probabilities(q: Posterior, x: Tensor, **options: Any) -> Float[Tensor, "N C"]:
    """Return the class probabilities that a posterior predicts."""
    return probabilities(predict(q, x, **options))


def at_mode(q: Gaussian, x: Tensor) -> Float[Tensor, "N C"]:
    """Return the class probabilities of the network at the mode."""
    return probabilities(predict(Point(q.model, q.likelihood), x))


def sampled(q: Posterior, x: Tensor, samples: int, seed: int) -> Float[Tensor, "N C"]:
    """Return the class probabilities of sampled networks; the same seed samples the same ones.

    The warning that they are far worse than the mode is suppressed: experiments measure just this.
    """
    with ignoring(SAMPLED):
        generator = torch.Generator().manual_seed(seed)
        return probabilities(predict(q, x, via="sampled", samples=samples, generator=generator))


def entropy(probs: Float[Tensor, "N C"]) -> Float[Tensor, " N"]:
    """Return the entropy of each row, in nats."""
    return torch.special.entr(probs).sum(-1)


def nll_difference(probs: Float[Tensor, "N C"], other: Float[Tensor, "N C"], targets: Tensor) -> Difference:
    """Return the NLL of the first less that of the other, on the same data."""
    rows = torch.arange(len(targets))
    each = (logs(other) - logs(probs))[rows, targets].double()
    return Difference(float(each.mean()), float(each.std()) / sqrt(len(each)))


@torch.no_grad()
def linearised(posteriors: Sequence[Gaussian], x: Tensor, title: str, progress: bool) -> list[Float[Tensor, "N C"]]:
    """Return the class probabilities of posteriors that differ in their prior only, by the default link.

    The costly part, which no prior changes, is done once for all of them.
    """
    likelihood = posteriors[0].likelihood
    link = choose_link(likelihood, None)
    units = partial(interacting_outputs, likelihood)
    memory = budget(None, posteriors[0].network.device)
    found: list[list[Tensor]] = [[] for _ in posteriors]
    pending: list[list[Tensor]] = [[] for _ in posteriors]  # covariances of the outputs that came so far
    for rows in track(x.split(ROWS), title, -(-len(x) // ROWS), progress):
        for each in projections(posteriors[0], rows, units, memory):
            parts = list(each.parts)
            for q, probs, covariances in zip(posteriors, found, pending, strict=True):
                covariances.append(q.precision.contract(parts, each.group))
                if each.last:
                    probs.append(probabilities(likelihood.marginal(each.f, torch.cat(covariances, 1), link)))
                    covariances.clear()
    return [torch.cat(probs) for probs in found]


def best(candidates: Sequence[Float[Tensor, "N C"]], held_out: Part) -> int:
    """Return the index of the candidate of lowest NLL on held-out data."""
    return min(range(len(candidates)), key=lambda n: metrics.nll(logs(candidates[n]), held_out[1]))
