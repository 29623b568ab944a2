"""Figure 12 of [miani2022]: classes from few labels, by neighbours among the codes of drawn networks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from torch import Tensor

from experiments import Findings, Record, Runner, Table, experiment, paired
from experiments.lae import models as lae_models
from experiments.lae.models import AE, DROPOUT, LONG, METHODS, ONLINE, RUNNING, VAES, Models
from osculate.tasks import semi_supervised

#: Methods that the document compares with.
RIVALS = (AE, *VAES, DROPOUT)


@dataclass(frozen=True)
class Settings(lae_models.Training):
    """Numbers of labels and of repetitions.

    Args:
        test_size: Number of test images.
        labels: Numbers of labels per class.
        repeats: Draws of labelled images per seed.
        samples: Number of sampled networks.
    """

    test_size: int = 1_000
    labels: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100)
    repeats: int = 20
    samples: int = 20


@experiment(
    "lae-figure12",
    "Classes from few labels, by neighbours among codes",
    "Laplacian Autoencoders [miani2022], Figure 12",
    paper=Settings(train_size=55_000, validation_size=5_000, test_size=5_000, fit=LONG, samples=100),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Measure the accuracy by method and number of labels."""
    table = Table()
    shares: dict[str, list[Tensor]] = {method: [] for method in METHODS}

    def correct(seed: int) -> dict[str, Tensor]:
        models = Models(settings, seed)
        record = semi_supervised(
            {method: models.representation(method) for method in METHODS},
            models.train,
            models.dataset.train[1],
            (models.test, models.dataset.test[1][: settings.test_size]),
            labels=settings.labels,
            repeats=settings.repeats,
            samples=settings.samples,
            seed=seed,
        )
        return {method: each.double().mean(1) for method, each in record.correct.items()}

    columns = [f"accuracy with {labels} labels a class" for labels in settings.labels]
    for found in runner.each("seeds", zip(seeds), correct):
        for method, each in found.items():
            shares[method].append(each)
            table.add(method, dict(zip(columns, each.mean(1).tolist(), strict=True)))
    accuracy = {m: [list(v) for v in zip(*(table[m, column] for column in columns), strict=True)] for m in METHODS}
    errors = {
        paired.beside(row, other, column): paired.difference_error(
            *([each[number] for each in shares[name]] for name in (row, other))
        )
        for row, other in product((ONLINE, RUNNING), RIVALS)
        for number, column in enumerate(columns)
    }
    data = {
        "labels": list(settings.labels),
        "accuracy": accuracy,
        paired.ERRORS: {name: float(f"{error:.3g}") for name, error in errors.items()},
    }
    return Findings(table.numbers(), (), data)


@measure.figure
def draw(record: Record) -> Any:
    """Draw the accuracy against the number of labels."""
    from osculate.plots import accuracy_against_labels

    data = record.findings.data
    curves = {}
    for method, rows in data["accuracy"].items():
        values = np.asarray(rows)
        error = values.std(0, ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.zeros(values.shape[1])
        curves[method] = values.mean(0), error
    return accuracy_against_labels(
        data["labels"], curves, "Digits from few labels, by nearest neighbours of their codes", 0.1
    )
