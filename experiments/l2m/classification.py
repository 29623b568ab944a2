"""L2M on images: what the document leaves for the future. Classification, out-of-distribution inputs, ensembles."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from experiments import Claim, Findings, Number, Record, Resumable, Runner, experiment, seeded
from experiments.evaluation import logs
from osculate import metrics
from osculate.data import Dataset, load, out_of_distribution
from osculate.likelihoods import Categorical
from osculate.methods import L2M, laplace
from osculate.networks import build
from osculate.posteriors import Ensemble, Mixture, Point, Posterior
from osculate.predictive import predict, tune
from osculate.progress import track
from osculate.tasks import ood

LIKELIHOOD = Categorical()
MODE, MEMBERS = "MAP", "deep ensemble"
PAPER, CORRECTED, HELD_OUT = "L2M as printed, sampled", "L2M, prior by the evidence", "L2M, prior by held-out data"
AGAIN, SINGLE, GGN, KRON = "L2M, drawn labels", "diagonal, single gradients", "diagonal GGN", "KFAC"
MIXED = "ensemble of L2M"
WAYS = (MODE, PAPER, CORRECTED, HELD_OUT, AGAIN, SINGLE, GGN, KRON, MEMBERS, MIXED)
NLL, ACCURACY, ECE, AUROC, SECONDS = (
    "test NLL, nats",
    "accuracy, %",
    "ECE",
    "AUROC, entropy: ",
    "seconds after training",
)
BINS = 15
#: Nats within which two test NLL count as equal.
CLOSE = 0.05


@dataclass(frozen=True)
class Task:
    """Images and a network.

    Args:
        data: name of the data set.
        network: name of the network.
        options: of the network.
        outside: sets that are told apart from it.
        epochs: of training.
    """

    data: str = "fashion_mnist"
    network: str = "lenet"
    options: Mapping[str, Any] = field(default_factory=dict)
    outside: tuple[str, ...] = ("MNIST", "KMNIST")
    epochs: int = 15


@dataclass(frozen=True)
class Settings(Resumable):
    """What is trained and scored.

    Args:
        tasks: images and networks; of all but the first only the first seed.
        sizes: images to train on, to hold out, to test on, and of each set outside.
        batch_size: images in a step.
        members: of the ensembles.
        refresh: batches with frozen weights, for drawn labels.
        decay: λ of the formula as printed.
    """

    tasks: tuple[Task, ...]
    sizes: tuple[int, int, int, int] = (12_000, 1_000, 4_000, 1_000)
    batch_size: int = 100
    members: int = 3
    refresh: int = 480
    decay: float = 0.1


_NARROW: dict[str, Any] = {"width": 8, "blocks": (1, 1, 1)}
PRESETS = {
    "small": Settings((Task(), Task("cifar10_jpeg", "preact_resnet", _NARROW, ("MNIST", "shuffled pixels")))),
    "paper": Settings(
        (Task(epochs=60), Task("cifar10", "preact_resnet", {}, ("MNIST", "shuffled pixels"), epochs=60)),
        sizes=(45_000, 5_000, 10_000, 10_000),
        members=5,
    ),
}
TITLES = {"fashion_mnist": "Fashion-MNIST, LeNet", "cifar10_jpeg": "CIFAR-10, ResNet", "cifar10": "CIFAR-10, ResNet"}


@experiment(
    "l2m-classification", "L2M on images", "L2M [perone2021], section 6: what it leaves for the future", **PRESETS
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Every way to predict, on every task and seed."""
    runner = Runner(settings.cells, progress)
    todo = [(task, seed) for task in settings.tasks for seed in (seeds if task is settings.tasks[0] else seeds[:1])]
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for task, seed in track(todo, "tasks and seeds", len(todo), progress):
        about = [asdict(task), *settings.sizes, settings.batch_size, settings.members, settings.refresh, settings.decay]
        rows = runner.cached("l2m-classification", (task.data, seed), about, partial(scored, settings, task, seed))
        for way, row in rows.items():
            found.setdefault((TITLES.get(task.data, task.data), way), []).append(row)
    numbers = [
        Number(f"{title}: {way}", column, tuple(row[column] for row in rows))
        for (title, way), rows in found.items()
        for column in rows[0]
    ]
    return Findings(tuple(numbers), _claims(found), {}, runner.seconds)


def scored(settings: Settings, task: Task, seed: int) -> dict[str, dict[str, float]]:
    """Scores of every way to predict, by way and column."""
    train_size, validation_size, test_size, outside_size = settings.sizes
    data = load(task.data, train_size=train_size, validation_size=validation_size, seed=seed)
    outside = {name: x[:outside_size] for name, x in out_of_distribution(data).items() if name in task.outside}
    x, y = data.test[0][:test_size], data.test[1][:test_size]
    found = {}
    for way, (q, how, seconds) in _posteriors(settings, task, data, seed).items():
        probs = torch.cat([_probabilities(q, part, how) for part in x.split(500)])
        found[way] = {
            NLL: metrics.nll(logs(probs), y),
            ACCURACY: 100 * metrics.accuracy(probs, y),
            ECE: metrics.ece(probs, y, BINS),
        }
        told = ood(q, x[:outside_size], outside, scores=["entropy"], batch_size=250, **how)
        found[way] |= {AUROC + name: told.auroc[name]["entropy"] for name in outside}
        found[way][SECONDS] = seconds
    return found


def _probabilities(q: Posterior, x: Tensor, how: Mapping[str, Any]) -> Tensor:
    return predict(q, x, **how).probs  # type: ignore[attr-defined]


def trained(settings: Settings, task: Task, data: Dataset, seed: int) -> tuple[nn.Module, Optimizer]:
    """A training loop as anybody writes it: Adam without weight decay, and a rate that falls by a cosine."""
    with seeded(seed):
        model = build(task.network, data.input_shape, data.outputs, **task.options)
        optimizer = Adam(model.parameters(), lr=1e-3)
        x, y = data.train
        steps = task.epochs * -(-len(x) // settings.batch_size)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(task.epochs):
            for rows in torch.randperm(len(x)).split(settings.batch_size):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimizer.step()
                schedule.step()
    return model.eval(), optimizer


def _posteriors(
    settings: Settings, task: Task, data: Dataset, seed: int
) -> dict[str, tuple[Posterior, dict[str, Any], float]]:
    """By way: the posterior, how it predicts, and the seconds that it took after training."""
    members = [trained(settings, task, data, 100 * seed + number) for number in range(settings.members)]
    model, optimizer = members[0]

    def l2m(network: nn.Module, state: Optimizer, **options: Any) -> L2M:
        size, batch = len(data.train[0]), settings.batch_size
        return L2M.from_optimizer(network, state, size, batch, LIKELIHOOD, data.train, **options)

    def held_out() -> Posterior:
        return tune(l2m(model, optimizer, prior_precision=1.0).posterior, data.validation)

    def printed() -> Posterior:
        return l2m(model, optimizer, prior_precision=settings.decay, scaling="paper").posterior

    makers: dict[str, Callable[[], Posterior]] = {
        MODE: lambda: Point(model, LIKELIHOOD),
        PAPER: printed,
        CORRECTED: lambda: l2m(model, optimizer).posterior,
        HELD_OUT: held_out,
        AGAIN: lambda: l2m(model, optimizer).refresh(settings.refresh, "drawn", torch.Generator().manual_seed(seed)),
        SINGLE: partial(_laplace, model, data.train, {"structure": "diag", "curvature": "empirical_fisher"}),
        GGN: partial(_laplace, model, data.train, {"structure": "diag"}),
        KRON: partial(_laplace, model, data.train, {}),
        MEMBERS: lambda: Ensemble([network for network, _ in members], LIKELIHOOD),
        MIXED: lambda: Mixture([l2m(*member) for member in members]),
    }
    sampled = {"via": "sampled", "samples": 20, "generator": torch.Generator().manual_seed(seed)}
    made: dict[str, tuple[Posterior, dict[str, Any], float]] = {}
    for way, make in makers.items():
        start = time.perf_counter()
        made[way] = (make(), sampled if way == PAPER else {}, time.perf_counter() - start)
    return made


def _laplace(model: nn.Module, data: tuple[Tensor, Tensor], options: Mapping[str, Any]) -> Posterior:
    return laplace(model, LIKELIHOOD, data, **options)


@dataclass(frozen=True)
class _Means:
    """Means over seeds, and their words."""

    found: Mapping[tuple[str, str], Sequence[Mapping[str, float]]]

    @property
    def titles(self) -> list[str]:
        """Of the tasks."""
        return list(dict.fromkeys(title for title, _ in self.found))

    def of(self, title: str, way: str, column: str) -> float:
        """One of them."""
        values = [row[column] for row in self.found[title, way]]
        return sum(values) / len(values)

    def auroc(self, title: str, way: str) -> float:
        """Over the sets outside."""
        columns = [column for column in self.found[title, way][0] if column.startswith(AUROC)]
        return sum(self.of(title, way, column) for column in columns) / max(1, len(columns))

    def told(self, column: str, ways: Iterable[str]) -> str:
        """Of several ways; AUROC where no column is named."""
        ways = list(ways)
        return "; ".join(
            f"{title}: "
            + ", ".join(
                f"{way} {self.of(title, way, column) if column else self.auroc(title, way):.3f}" for way in ways
            )
            for title in self.titles
        )


def _claims(found: Mapping[tuple[str, str], Sequence[Mapping[str, float]]]) -> tuple[Claim, ...]:
    means = _Means(found)
    of, auroc, told, titles = means.of, means.auroc, means.told, means.titles
    return (
        Claim.judged(
            "L2M can be used for classification: with the corrected scale it tells foreign images apart better than "
            f"MAP, at an NLL that is not more than {CLOSE:g} nats higher",
            all(
                auroc(title, CORRECTED) > auroc(title, MODE)
                and of(title, CORRECTED, NLL) <= of(title, MODE, NLL) + CLOSE
                for title in titles
            ),
            f"AUROC by entropy, mean over the sets: {told('', (MODE, CORRECTED, SINGLE, KRON))}. "
            f"Test NLL: {told(NLL, (MODE, CORRECTED, HELD_OUT, SINGLE))}.",
        ),
        Claim.judged(
            "The optimiser's second moment is as good as a pass with the gradients of single data: NLL within "
            f"{CLOSE:g} nats",
            all(abs(of(title, CORRECTED, NLL) - of(title, SINGLE, NLL)) <= CLOSE for title in titles),
            f"test NLL: {told(NLL, (CORRECTED, SINGLE, AGAIN, GGN))}.",
        ),
        Claim.judged(
            "The printed formula gives useful predictions: accuracy not below MAP's by more than a point",
            all(of(title, PAPER, ACCURACY) >= of(title, MODE, ACCURACY) - 1 for title in titles),
            f"accuracy: {told(ACCURACY, (MODE, PAPER))}. Its precisions are nearly 1/λ + ε for all weights.",
        ),
        Claim.judged(
            "L2M improves on each member of an ensemble: the mixture has a lower NLL than the ensemble, or tells "
            "foreign images apart better",
            all(
                of(title, MIXED, NLL) < of(title, MEMBERS, NLL) or auroc(title, MIXED) > auroc(title, MEMBERS)
                for title in titles
            ),
            f"test NLL: {told(NLL, (MEMBERS, MIXED))}; AUROC: {told('', (MEMBERS, MIXED))}.",
        ),
    )


@measure.figure
def draw(record: Record) -> Any:
    """Scores by way, one panel a task and score."""
    from experiments.figures import method_scores

    numbers = record.findings.numbers
    far = [number.column for number in numbers if number.column.startswith(AUROC)]
    return method_scores(numbers, [NLL, ECE, *far[:1]], "A posterior from the state of Adam, on images")
