"""Active learning: accuracy by number of labels, with a rule that was chosen on other data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor

import osculate as osc
from experiments import TITLES, Claim, Findings, Record, Resumable, Runner, Table, experiment, train
from osculate.data import Dataset, load
from osculate.posteriors import Posterior
from osculate.randomness import seeded

LIKELIHOOD = osc.likelihoods.Categorical()
RANDOM = "random"
#: Rules by their words in table and figure, with the score of ``osc.tasks.acquire``.
RULES = {
    RANDOM: "random",
    "entropy": "entropy",
    "BALD": "bald",
    "batch: joint information": "batch",
    "reduction of the pool's uncertainty": "reduction",
}
LABELS, ACCURACY, AVERAGE = "labels", "accuracy", "accuracy, mean over rounds, %"
#: Labels in a step.
BATCH = 32


@dataclass(frozen=True)
class Settings(Resumable):
    """A small convolutional network, trained anew in each round.

    Steps, learning rate, width and precision were chosen on held-out images of MNIST with random labels.

    Args:
        choice: Data on which the rule is chosen.
        data: Data on which it is judged.
        pool: Training images without labels.
        copies: Copies of each image in a second pool of the same size, with small noise; 0 for no such pool.
        budget: Labels at the start, labels in a round, and number of rounds.
        among: Images of the pool that a rule scores in a round, and candidates of a joint rule.
        steps: Steps of each training.
        lr: Largest learning rate.
        precision: Prior precision of the training.
    """

    choice: str = "mnist"
    data: str = "fashion_mnist"
    pool: int = 5000
    copies: int = 0
    budget: tuple[int, int, int] = (20, 28, 10)
    among: tuple[int, int] = (600, 50)
    steps: int = 200
    lr: float = 0.01
    precision: float = 1.0


def repeated(copies: int) -> str:
    """Return the suffix of a pool with copies."""
    return f", {copies} copies of each image" if copies > 1 else ""


@experiment(
    "functions-active",
    "Active learning: accuracy by number of labels",
    "No document: rules of [houlsby2011; kirsch2019; cohn1996] with the linearised predictive",
    paper=Settings(pool=20_000, copies=10, budget=(20, 20, 24), among=(5000, 100)),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Label by each rule, and choose one of them on the first data set."""
    pools = [(settings.choice, 1), (settings.data, 1)] + [(settings.data, settings.copies)] * (settings.copies > 1)
    about = [settings.pool, settings.budget, settings.among, settings.steps, settings.lr, settings.precision]
    jobs = [(*pool, rule, seed) for pool, rule, seed in product(pools, RULES, seeds)]
    runs = runner.over("pools, rules and seeds", jobs, partial(learned, settings), "active", about)
    curves: dict[str, dict[str, list[list[float]]]] = {}
    labels: list[int] = []
    for (name, copies, rule), each in runs.items():
        labels = each[0][LABELS]
        rows = [[round(value, 4) for value in one[ACCURACY]] for one in each]
        curves.setdefault(f"{TITLES[name]}{repeated(copies)}", {})[rule] = rows
    table = Table()
    for pool, rules in curves.items():
        for rule, rows in rules.items():
            for row in rows:
                table.add(f"{pool}: {rule}", {**_shown(labels, row), AVERAGE: 100 * mean(row)})
    return Findings(table.numbers(), claims(curves, labels), {"curves": curves, "labels": labels})


def _shown(labels: Sequence[int], accuracies: Sequence[float]) -> dict[str, float]:
    """Return the accuracies with a third and with all of the labels, in percent."""
    places = (len(labels) // 3, len(labels) - 1)
    return {f"accuracy with {labels[place]} labels, %": 100 * accuracies[place] for place in places}


def learned(settings: Settings, name: str, copies: int, rule: str, seed: int) -> dict[str, Any]:
    """Return the numbers of labels and the accuracies of one run."""
    data = load(name, train_size=settings.pool // copies, validation_size=0, seed=seed)
    pool, targets = with_copies(data, copies, seed)
    first, count, rounds = settings.budget
    among, candidates = settings.among
    found = osc.tasks.active_learning(
        partial(fitted, settings, data, seed),
        pool,
        targets,
        data.test,
        rule=partial(osc.tasks.acquire, score=RULES[rule], among=among, candidates=candidates),
        first=first,
        count=count,
        rounds=rounds,
        seed=seed,
        via="mode",
    )
    return {LABELS: list(found.labels), ACCURACY: found.scores["accuracy"].tolist()}


def with_copies(data: Dataset, copies: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the training images, each with noise of standard deviation 0.1 in each copy, and their targets."""
    x, y = data.train
    if copies == 1:
        return x, y
    x, y = x.repeat(copies, 1, 1, 1), y.repeat(copies)
    return x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)), y


def fitted(settings: Settings, data: Dataset, seed: int, x: Tensor, y: Tensor) -> Posterior:
    """Train anew from the same initial weights, and fit by the defaults."""
    with seeded(seed):
        model = osc.networks.build("cnn", data.input_shape, data.outputs, width=8)
    epochs = max(1, settings.steps // -(-len(x) // BATCH))
    method = osc.methods.MAP(model, LIKELIHOOD, settings.precision)
    train(method, (x, y), epochs=epochs, batch_size=BATCH, lr=settings.lr, seed=seed)
    return osc.laplace(model.eval(), LIKELIHOOD, (x, y))


def labels_needed(labels: Sequence[int], curves: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, int | None]:
    """Return the labels from which on the mean accuracy of a rule is at least the last one of random.

    None if it is below with the largest number of labels.
    """
    means = {rule: np.mean(rows, 0) for rule, rows in curves.items()}
    found: dict[str, int | None] = {}
    for rule, values in means.items():
        above = np.minimum.accumulate((values >= means[RANDOM][-1])[::-1])[::-1]
        found[rule] = labels[int(above.argmax())] if above.any() else None
    return found


def claims(curves: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], labels: Sequence[int]) -> Iterator[Claim]:
    """Yield the labels needed in every pool but the first, on which the rule is chosen."""
    (choice, first), *others = curves.items()
    needed = labels_needed(labels, first)
    averages = {rule: mean(map(mean, rows)) for rule, rows in first.items() if rule != RANDOM}
    chosen = min(averages, key=lambda rule: (needed[rule] or labels[-1] + 1, -averages[rule]))
    counts = (
        f"{pool}: " + ", ".join(f"{n or 'not reached'} ({rule})" for rule, n in labels_needed(labels, rules).items())
        for pool, rules in others
    )
    yield Claim.over_seeds(
        "labels needed",
        f"Chosen: {chosen} ({choice}: {needed[chosen] or 'more than ' + str(labels[-1])} labels). Labels needed of "
        f"{labels[-1]} for the final accuracy of random ones, by mean curves: {'; '.join(counts)}.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Accuracy against labels, one panel a pool."""
    from experiments.functions import figures

    data = record.findings.data
    return figures.learning_curves(
        data["labels"], data["curves"], "Active learning: accuracy with the labels that each rule chooses"
    )
