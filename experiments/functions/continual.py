"""Five tasks one after another: an earlier posterior as prior, beside fine-tuning, replay and all tasks at once."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from statistics import mean
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import osculate as osc
from experiments import TITLES, Claim, Findings, Record, Resumable, Runner, Table, experiment, listed, seeded, train
from experiments.evaluation import class_probabilities
from osculate.data import load

PERMUTED, SPLIT = "permuted", "split"
FINE, REPLAY, JOINT, KRON, DIAG = "fine-tuning", "replay", "all tasks at once", "prior, kron", "prior, diag"
#: Structure of the posterior of those that have one.
STRUCTURES = {KRON: "kron", DIAG: "diag"}
METHODS = (JOINT, FINE, REPLAY, DIAG, KRON)
AVERAGE, NEW, CLOSED = "final average accuracy, %", "accuracy on the newest task, %", "part of the gap closed, %"
LIKELIHOOD = osc.likelihoods.Categorical()
#: The sequence on which hyperparameters are chosen: other permutations, images and initial weights than any reported.
CHOICE = 1000
#: Classes of a task of split MNIST.
CLASSES = 2

Part = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Settings(Resumable):
    """A network with two hidden layers on parts of a set of images.

    Args:
        data: Name of the set of images.
        tasks: Number of tasks.
        size: Training images of a task.
        held_out: Other training images, by which hyperparameters are chosen.
        test: Test images.
        kept: Images of each earlier task that replay trains on again.
        width: Units of both hidden layers.
        precision: Prior precision before the first task, of all methods.
        batch_size: Images in a step.
        rates: Candidates of the learning rate.
        epochs: Candidates of the number of epochs of a task.
        weights: Candidates of λ, the weight of a task's curvature in the prior of the next.
    """

    data: str = "mnist"
    tasks: int = 5
    size: int = 5_000
    held_out: int = 5_000
    test: int = 10_000
    kept: int = 200
    width: int = 100
    precision: float = 0.1
    batch_size: int = 256
    rates: tuple[float, ...] = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
    epochs: tuple[int, ...] = (2, 10)
    weights: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4)


class Chosen(NamedTuple):
    """Hyperparameters of a method.

    Attributes:
        rate: Learning rate.
        epochs: Epochs of a task.
        weight: λ.
        begun: True if the network has learned the first task before, with the rate and epochs of all tasks at once.
    """

    rate: float
    epochs: int
    weight: float = 1.0
    begun: bool = False


@dataclass(frozen=True, eq=False)
class Trial:
    """A sequence of tasks with one seed.

    Attributes:
        tasks: Training images and classes of each task.
        tests: Other images and classes of each task.
    """

    settings: Settings
    tasks: list[Part]
    tests: list[Part]
    seed: int

    @classmethod
    @lru_cache(2)
    def of(cls, settings: Settings, sequence: str, seed: int) -> "Trial":
        """Return a sequence: permuted pixels of all classes, or two classes a task, named first and second.

        Scores are those on held-out training images for the seed of the choice, else those on test images.
        """
        images, scored = _parts(settings, seed)
        generator = torch.Generator().manual_seed(seed)
        tasks: list[Part] = []
        tests: list[Part] = []
        for number in range(settings.tasks):
            order = torch.randperm(images[0].shape[1], generator=generator) if number else slice(None)
            for (x, y), found in ((images, tasks), (scored, tests)):
                rows = torch.arange(len(y))
                if sequence == SPLIT:
                    rows, y = (y // CLASSES == number).nonzero().flatten(), y % CLASSES
                if found is tasks:
                    rows = rows[torch.randperm(len(rows), generator=generator)[: settings.size]]
                found.append((x[rows] if sequence == SPLIT else x[rows][:, order], y[rows]))
        return cls(settings, tasks, tests, seed)

    def network(self) -> nn.Module:
        """Return a new network."""
        x, y = self.tasks[0]
        width = self.settings.width
        with seeded(self.seed):
            return osc.networks.MLP(x.shape[1], (width, width), int(y.max()) + 1, activation="relu")

    def options(self, chosen: Chosen) -> dict[str, Any]:
        """Return the options of a training."""
        batch_size = self.settings.batch_size
        return {"lr": chosen.rate, "epochs": chosen.epochs, "batch_size": batch_size, "seed": self.seed}

    def trained(self, network: nn.Module, parts: Sequence[Part], chosen: Chosen) -> list[float]:
        """Train on the images of some tasks, and return the accuracy on every task."""
        data = tuple(torch.cat(part) for part in zip(*parts, strict=True))
        q = train(osc.methods.MAP(network, LIKELIHOOD, self.settings.precision), data, **self.options(chosen)).posterior
        return [osc.metrics.accuracy(class_probabilities(q, x), y) for x, y in self.tests]

    @lru_cache(2)  # noqa: B019
    def begun(self, start: Chosen) -> nn.Module:
        """Return a network that has learned the first task."""
        network = self.network()
        self.trained(network, self.tasks[:1], start)
        return network

    def accuracy(self, method: str, chosen: Chosen, start: Chosen | None) -> list[list[float]]:
        """Return the accuracy on every task (columns), after each task (rows).

        Args:
            method: Name of the method.
            chosen: Hyperparameters.
            start: Hyperparameters of a training on the first task, before the sequence; None for new networks.
        """
        network = deepcopy(self.begun(start)) if start else self.network()
        if method == JOINT:
            return [self.trained(network, self.tasks, chosen)]
        if method in STRUCTURES:
            structure, options = STRUCTURES[method], {**self.options(chosen), "device": "cpu"}
            record = osc.tasks.continual_learning(
                network, LIKELIHOOD, self.tasks, self.tests, structure=structure, prior=self.settings.precision,
                weight=chosen.weight, **options,
            )  # fmt: skip
            return record.scores.tolist()
        found: list[list[float]] = []
        kept: list[Part] = []
        for x, y in self.tasks:
            found.append(self.trained(network, [(x, y), *kept], chosen))
            if method == REPLAY:
                kept.append((x[: self.settings.kept], y[: self.settings.kept]))
        return found


@lru_cache(4)
def _parts(settings: Settings, seed: int) -> tuple[Part, Part]:
    needed = int(1.2 * settings.tasks * settings.size)  # enough of each class
    data = load(settings.data, train_size=needed, validation_size=settings.held_out, seed=seed)
    x, y = data.validation if seed == CHOICE else (part[: settings.test] for part in data.test)
    return (data.train[0].flatten(1), data.train[1]), (x.flatten(1), y)


@dataclass(frozen=True)
class Runs:
    """Runs of one method on one sequence.

    Attributes:
        start: Hyperparameters by which networks learn the first task before.
    """

    settings: Settings
    runner: Runner
    sequence: str
    method: str
    start: Chosen | None = None

    def of(self, candidates: Sequence[Chosen], seeds: Sequence[int]) -> dict[Chosen, list[Any]]:
        """Return accuracies by hyperparameters, of each seed."""
        about = [v for k, v in vars(self.settings).items() if k not in ("cells", "rates", "epochs", "weights")]
        found: dict[Chosen, list[Any]] = {}
        for begun in {each.begun for each in candidates}:
            start = self.start if begun else None
            jobs = [
                (self.sequence, self.method, *c[:3], seed) for c in candidates if c.begun == begun for seed in seeds
            ]
            results = self.runner.over(
                f"{self.sequence}, {self.method}",
                jobs,
                partial(self._measured, start),
                "continual",
                [*about, *(start or ())[:3]],
            )
            found |= {
                Chosen(*key[2:])._replace(begun=begun): [each["accuracy"] for each in values]
                for key, values in results.items()
            }
        return found

    def _measured(self, start: Chosen | None, sequence: str, method: str, *rest: Any) -> dict[str, Any]:
        *chosen, seed = rest
        return {"accuracy": Trial.of(self.settings, sequence, seed).accuracy(method, Chosen(*chosen), start)}

    def scores(self) -> dict[Chosen, float]:
        """Return the final average accuracy on held-out images, by hyperparameters.

        Rate and epochs at λ = 1, then λ at these, then rate and epochs again. A posterior is taken at a mode, so that
        networks with one have learned the first task before; fine-tuning and replay choose this too.
        """
        scores: dict[Chosen, float] = {}
        choices = (True,) if self.method in STRUCTURES else (False,) if self.start is None else (False, True)

        def improved(candidates: Sequence[Chosen]) -> Chosen:
            runs = self.of([each for each in candidates if each not in scores], [CHOICE])
            scores.update({each: averages(accuracy)[-1] for each, (accuracy,) in runs.items()})
            return max(scores, key=scores.__getitem__)

        def trainings(weight: float) -> list[Chosen]:
            return [
                Chosen(*each[:2], weight, each[2])
                for each in product(self.settings.rates, self.settings.epochs, choices)
            ]

        found = improved(trainings(1.0))
        if self.method in STRUCTURES:
            found = improved([found._replace(weight=weight) for weight in self.settings.weights])
            improved(trainings(found.weight))
        return scores


def averages(accuracy: Sequence[Sequence[float]]) -> list[float]:
    """Return the accuracy after each task, averaged over the tasks so far, in percent."""
    if len(accuracy) == 1:  # all tasks at once
        return [100 * mean(accuracy[0])]
    return [100 * mean(row[: number + 1]) for number, row in enumerate(accuracy)]


def closed(value: float, low: float, high: float) -> float:
    """Return the part of a gap that is closed, in percent; all of it where there is none."""
    return 100 * (value - low) / (high - low) if high > low else 100.0


@experiment(
    "functions-continual",
    "Five tasks one after another: an earlier posterior as prior, beside fine-tuning, replay and all tasks at once",
    "No document: the online structured Laplace approximation [ritter2018] on parts of MNIST",
    paper=Settings(size=9_000, epochs=(1, 3, 10, 30)),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Choose hyperparameters on held-out images of one sequence, and measure on test images of others."""
    table, curves = Table(), {}
    held_out: dict[str, dict[Chosen, float]] = {}
    title = TITLES[settings.data]
    for sequence in (PERMUTED, SPLIT):
        start: Chosen | None = None
        for method in METHODS:
            row, runs = f"{sequence} {title}: {method}", Runs(settings, runner, sequence, method, start)
            held_out[row] = runs.scores()
            chosen = max(held_out[row], key=held_out[row].__getitem__)
            start = start or chosen  # of all tasks at once, the first method
            (found,) = runs.of([chosen], seeds).values()
            curves[row] = [averages(accuracy) for accuracy in found]
            for accuracy, curve in zip(found, curves[row], strict=True):
                new = {} if method == JOINT else {NEW: 100 * mean(each[n] for n, each in enumerate(accuracy))}
                table.add(row, {AVERAGE: curve[-1], **new})
    for sequence in (PERMUTED, SPLIT):
        low, high = (table[f"{sequence} {title}: {method}", AVERAGE] for method in (FINE, JOINT))
        for method in (REPLAY, DIAG, KRON):
            row = f"{sequence} {title}: {method}"
            for value, a, b in zip(table[row, AVERAGE], low, high, strict=True):
                table.add(row, {CLOSED: closed(value, a, b)})
    tried = {
        row: [
            {**each._asdict(), "held-out": score} for each, score in sorted(scores.items(), key=lambda pair: -pair[1])
        ]
        for row, scores in held_out.items()
    }
    numbers = table.numbers((AVERAGE, CLOSED, NEW))
    claim = Claim.over_seeds("gap closed on split classes", limits(held_out[f"{SPLIT} {title}: {KRON}"]))
    return Findings(numbers, (claim,), {"curves": curves, "tried": tried})


def limits(scores: Mapping[Chosen, float]) -> str:
    """Return in words how the rate and λ change the average on held-out images, beside the best of them."""
    best = max(scores, key=scores.__getitem__)
    rates = {f"rate {c.rate:g}": v for c, v in scores.items() if c[1:] == best[1:]}
    weights = {f"λ = {c.weight:g}": v for c, v in sorted(scores.items()) if c._replace(weight=best.weight) == best}
    return (
        f"On held-out images, with {best.epochs} epochs: {listed(rates, '.1f')}; {listed(weights, '.1f')}. Where "
        "little of the gap is closed: a network that is certain of its classes has little curvature, which holds "
        "little against long training on the next task; a larger λ, or less training, leaves the next task unlearned."
    )


@measure.figure
def draw(record: Record) -> Any:
    """Average accuracy over the tasks so far, one panel a sequence."""
    from experiments.functions import figures
    from osculate.plots import style

    curves, settings = record.findings.data["curves"], record.setup.settings
    title = TITLES[settings["data"]]
    words = {
        FINE: "fine-tuning",
        REPLAY: f"replay of {settings['kept']} images of each earlier task",
        DIAG: "earlier posterior as prior, diagonal (EWC)",
        KRON: "earlier posterior as prior, Kronecker factors",
        JOINT: "all tasks at once (upper end)",
    }
    tints = (style.ORANGE, style.YELLOW, style.PURPLE, style.GREEN, style.INK)
    panels = {
        f"{sequence} {title}: {about}": {words[method]: curves[f"{sequence} {title}: {method}"] for method in METHODS}
        for sequence, about in {
            PERMUTED: "pixels in a new order each",
            SPLIT: "two digits each, one pair of outputs",
        }.items()
    }
    heading = f"{settings['tasks']} tasks one after another: what is left of the earlier ones"
    return figures.averages(panels, words[JOINT], dict(zip(words.values(), tints, strict=True)), heading)
