"""L2M on images, which the document leaves for the future: classification, out-of-distribution inputs, ensembles."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Adam, Optimizer

import osculate as osc
from experiments import Claim, Findings, Record, Resumable, Runner, Table, experiment, paired, seeded, timed
from experiments.by_image import IMAGES, PLACES, by_image, errors_of_detection, errors_over_images
from experiments.evaluation import logs
from osculate import metrics
from osculate.data import Dataset
from osculate.methods import L2M
from osculate.posteriors import Ensemble, Mixture, Point, Posterior

LIKELIHOOD = osc.likelihoods.Categorical()
MODE, MEMBERS = "MAP", "deep ensemble"
PAPER, CORRECTED, HELD_OUT = "L2M as printed, sampled", "L2M, prior by the evidence", "L2M, prior by held-out data"
AGAIN, SINGLE, GGN, KRON = "L2M, drawn labels", "diagonal, single gradients", "diagonal GGN", "KFAC"
MIXED = "ensemble of L2M"
NLL, ACCURACY, ECE = "test NLL, nats", "accuracy, %", "ECE"
AUROC, SECONDS = "AUROC, entropy: ", "seconds after training"
#: The AUROCs averaged over the sets that a task is compared with.
ON_AVERAGE = "AUROC"
BINS = 15


@dataclass(frozen=True)
class Task:
    """Images and a network.

    Args:
        data: Name of the data set.
        network: Name of the network.
        options: Options of the network.
        outside: Out-of-distribution sets.
        epochs: Epochs of training.
    """

    data: str = "fashion_mnist"
    network: str = "lenet"
    options: Mapping[str, Any] = field(default_factory=dict)
    outside: tuple[str, ...] = ("MNIST", "KMNIST")
    epochs: int = 15


@dataclass(frozen=True)
class Settings(Resumable):
    """Tasks, training and L2M.

    Args:
        tasks: Images and networks.
        sizes: Numbers of training, validation and test images, and of images of each out-of-distribution set.
        batch_size: Batch size.
        members: Members of the ensembles.
        refresh: Batches at fixed weights, for drawn labels.
        decay: λ of the printed formula.
    """

    tasks: tuple[Task, ...]
    sizes: tuple[int, int, int, int] = (12_000, 1_000, 4_000, 1_000)
    batch_size: int = 100
    members: int = 3
    refresh: int = 480
    decay: float = 0.1


_NARROW: dict[str, Any] = {"width": 8, "blocks": (1, 1, 1)}
TITLES = {"fashion_mnist": "Fashion-MNIST, LeNet", "cifar10_jpeg": "CIFAR-10, ResNet", "cifar10": "CIFAR-10, ResNet"}


@experiment(
    "l2m-classification",
    "L2M on images",
    "L2M [perone2021], section 6: what it leaves for the future",
    small=Settings((Task(), Task("cifar10_jpeg", "preact_resnet", _NARROW, ("MNIST", "shuffled pixels")))),
    paper=Settings(
        (Task(epochs=60), Task("cifar10", "preact_resnet", {}, ("MNIST", "shuffled pixels"), epochs=60)),
        sizes=(45_000, 5_000, 10_000, 10_000),
        members=5,
    ),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Score every way to predict, on every task and seed."""
    about = [asdict(replace(settings, cells=""))]
    jobs = [(task.data, seed) for task in settings.tasks for seed in seeds]
    cells = runner.over("tasks and seeds", jobs, partial(scored, settings), "l2m-classification", about)
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for data, runs in cells.items():
        for way in runs[0]:
            rows[f"{TITLES.get(data, data)}: {way}"] = [run[way] for run in runs]
    table = Table.of({row: [run["scores"] for run in runs] for row, runs in rows.items()})
    claim = Claim.over_seeds("Accuracy of the printed formula", "Its precisions are nearly 1/λ + ε for all weights.")
    return Findings(
        table.numbers(), (claim,), {paired.ERRORS: errors_over_images(rows) | errors_of_detection(rows, ON_AVERAGE)}
    )


def scored(settings: Settings, name: str, seed: int) -> dict[str, dict[str, Any]]:
    """Return for every way to predict: its scores, those of each image, and the shares that give each AUROC."""
    task = next(task for task in settings.tasks if task.data == name)
    train_size, validation_size, test_size, outside_size = settings.sizes
    data = osc.data.load(name, train_size=train_size, validation_size=validation_size, seed=seed)
    outside = {k: x[:outside_size] for k, x in osc.data.out_of_distribution(data).items() if k in task.outside}
    x, y = data.test[0][:test_size], data.test[1][:test_size]
    found = {}
    for way, (q, how, seconds) in posteriors(settings, task, data, seed).items():
        probs = torch.cat([osc.predict(q, part, **how).probs for part in x.split(500)])  # type: ignore[attr-defined]
        detected = osc.tasks.ood(q, x[:outside_size], outside, scores=["entropy"], batch_size=250, **how)
        found[way] = {
            "scores": {
                NLL: metrics.nll(logs(probs), y),
                ACCURACY: 100 * metrics.accuracy(probs, y),
                ECE: metrics.ece(probs, y, BINS),
                **{AUROC + name: detected.auroc[name]["entropy"] for name in outside},
                SECONDS: seconds,
            },
            IMAGES: by_image(probs, y, (NLL, ACCURACY)),
            PLACES: [paired.places(detected.inside["entropy"], far["entropy"]) for far in detected.outside.values()],
        }
    return found


def trained(settings: Settings, task: Task, data: Dataset, seed: int) -> tuple[nn.Module, Optimizer]:
    """Train in a common loop: Adam without weight decay, with a cosine of the learning rate."""
    with seeded(seed):
        model = osc.networks.build(task.network, data.input_shape, data.outputs, **task.options)
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


def posteriors(
    settings: Settings, task: Task, data: Dataset, seed: int
) -> dict[str, tuple[Posterior, dict[str, Any], float]]:
    """Return by way: the posterior, its options of prediction, and its seconds after training."""
    members = [trained(settings, task, data, 100 * seed + number) for number in range(settings.members)]
    model, optimizer = members[0]
    laplace = partial(osc.laplace, model, LIKELIHOOD, data.train, refine=False)

    def l2m(network: nn.Module, state: Optimizer, **options: Any) -> L2M:
        size, batch = len(data.train[0]), settings.batch_size
        return L2M.from_optimizer(network, state, size, batch, LIKELIHOOD, data.train, **options)

    makers: dict[str, Callable[[], Posterior]] = {
        MODE: lambda: Point(model, LIKELIHOOD),
        PAPER: lambda: l2m(model, optimizer, prior_precision=settings.decay, scaling="paper").posterior,
        CORRECTED: lambda: l2m(model, optimizer).posterior,
        HELD_OUT: lambda: osc.tune(l2m(model, optimizer, prior_precision=1.0).posterior, data.validation),
        AGAIN: lambda: l2m(model, optimizer).refresh(settings.refresh, "drawn", torch.Generator().manual_seed(seed)),
        SINGLE: lambda: laplace(structure="diag", curvature="empirical_fisher"),
        GGN: lambda: laplace(structure="diag"),
        KRON: laplace,
        MEMBERS: lambda: Ensemble([network for network, _ in members], LIKELIHOOD),
        MIXED: lambda: Mixture([l2m(*member) for member in members]),
    }
    sampled = {"via": "sampled", "samples": 20, "generator": torch.Generator().manual_seed(seed)}
    made: dict[str, tuple[Posterior, dict[str, Any], float]] = {}
    for way, make in makers.items():
        q, seconds = timed(make)
        made[way] = (q, sampled if way == PAPER else {}, seconds)
    return made


@measure.figure
def draw(record: Record) -> Any:
    """Draw the scores by way, one panel per task and score."""
    from experiments.figures import method_scores

    numbers = record.findings.numbers
    far = [number.column for number in numbers if number.column.startswith(AUROC)]
    return method_scores(numbers, [NLL, ECE, *far[:1]], "A posterior from the state of Adam, on images")
