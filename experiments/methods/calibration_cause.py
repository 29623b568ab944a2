"""Cause of the bad calibration of Laplace's method: margins of the training data that nothing holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

import osculate as osc
from experiments import Findings, Record, Resumable, Runner, Table, experiment
from experiments.evaluation import class_probabilities, logs
from experiments.methods.networks import Task

LIKELIHOOD = osc.likelihoods.Categorical()
UNREFINED, REFINED = "Laplace's own (refine=False)", "osc.laplace"
SPREAD, TRAIN, TEST = "deviation of the margin on training data", "NLL on training data, nats", "NLL on test data, nats"
TASK = Task("digits", "cnn", "MAP", held_out=200, epochs=40, lr=1e-2)
#: Ends of the deviations that the histogram counts.
RANGE = (0.0, 15.0)


@dataclass(frozen=True)
class Settings(Resumable):
    """The network.

    Args:
        epochs: Epochs of its training.
    """

    epochs: int = 40


@experiment(
    "calibration-cause",
    "Standard deviation of the margin on the training data, before and after refinement",
    "No document: the digits of scikit-learn, the network of the demo",
    paper=Settings(epochs=200),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Measure the deviations of the margins of the training data, and what they do to predictions."""
    table = Table()
    shown: dict[str, list[float]] = {}
    for seed in runner.track(seeds, "seeds"):
        dataset = TASK.load(seed)
        network = TASK.trained(runner, dataset, LIKELIHOOD, seed, epochs=settings.epochs)
        posteriors = {
            "network": osc.posteriors.Point(network, LIKELIHOOD),
            UNREFINED: osc.laplace(network, LIKELIHOOD, dataset.train, refine=False),
            REFINED: osc.laplace(network, LIKELIHOOD, dataset.train),
        }
        for name, q in posteriors.items():
            values = {
                column: osc.metrics.nll(logs(class_probabilities(q, x)), y)
                for column, (x, y) in ((TRAIN, dataset.train), (TEST, dataset.test))
            }
            if isinstance(q, osc.posteriors.Gaussian):
                deviations = margin_deviations(q, *dataset.train)
                values[SPREAD] = float(deviations.median())
                shown.setdefault(name, torch.histc(deviations, 60, *RANGE).tolist())
            table.add(name, values)
    return Findings(table.numbers(), (), {"counts": shown, "range": list(RANGE)})


def margin_deviations(q: osc.posteriors.Gaussian, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the standard deviation of the margin of each datum: the logit of its class less that of the runner-up."""
    covariance, f, rows = osc.functional_variance(q, x), q.network(x).detach(), torch.arange(len(y))
    rival = f.index_put((rows, y), torch.tensor(-torch.inf)).argmax(-1)
    variance = covariance[rows, y, y] + covariance[rows, rival, rival] - 2 * covariance[rows, y, rival]
    return variance.clamp(min=0).sqrt()


@measure.figure
def draw(record: Record) -> Any:
    """Two histograms on one axis."""
    from experiments.figures import deviations

    data = record.findings.data
    heading = "How uncertain the training data are: margin of the true class"
    return deviations(data["counts"], tuple(data["range"]), heading)
