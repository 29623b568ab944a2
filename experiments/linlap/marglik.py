"""Prior precisions by the online marginal likelihood against one chosen on validation data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from experiments import Findings, Number, Record, experiment, seeded
from experiments.linlap.marglik_claims import (
    ACCURACY,
    BURN_IN,
    BY_GRADIENT,
    CV,
    ERROR,
    GAIN,
    LOG_LIKELIHOOD,
    ML,
    claims,
)
from osculate import metrics
from osculate.data import Dataset, load
from osculate.likelihoods import Categorical
from osculate.methods.map import MAP
from osculate.methods.marginal_likelihood import EvidenceUpdates, MarginalLikelihood
from osculate.networks import build
from osculate.posteriors import Gaussian
from osculate.predictive import predict
from osculate.priors import Layerwise
from osculate.progress import track
from osculate.training import Training, train


@dataclass(frozen=True)
class Row:
    """A data set and a network.

    Attributes:
        data: name of the data set.
        network: name of the network.
        small: its options at small scale.
        paper: those of the document, where it says them.
        printed: accuracy and log likelihood by cross-validation, the same by the marginal likelihood.
        share: of the training images that it gets at small scale.
    """

    data: str
    network: str
    small: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)
    printed: tuple[str, str, str, str] = ("", "", "", "")
    share: float = 1.0


_DENSE: dict[str, Any] = {"hidden": (200, 100), "activation": "relu"}
_DEEP: dict[str, Any] = {"hidden": (1024, 512, 256, 128), "activation": "tanh"}
_NARROW: dict[str, Any] = {"width": 4, "blocks": (1, 1, 1), "stem": 4}
ROWS: dict[str, Row] = {
    "MNIST, MLP": Row("mnist", "mlp", _DENSE, _DEEP, ("98.22", "-0.061", "98.38", "-0.053")),
    "MNIST, CNN": Row("mnist", "lenet", printed=("99.40", "-0.017", "99.46", "-0.016")),
    "Fashion-MNIST, MLP": Row("fashion_mnist", "mlp", _DENSE, _DEEP, ("88.09", "-0.347", "89.83", "-0.305")),
    "Fashion-MNIST, CNN": Row("fashion_mnist", "lenet", printed=("91.39", "-0.258", "92.06", "-0.233")),
    "Fashion-MNIST, ResNet": Row("fashion_mnist", "fixup_resnet", _NARROW, share=0.5),
    "CIFAR-10, CNN": Row("cifar10", "lenet", {}, printed=("77.41", "-0.680", "80.46", "-0.644")),
    "CIFAR-10, ResNet": Row(
        "cifar10", "fixup_resnet", _NARROW, printed=("83.73", "-1.060", "86.11", "-0.595"), share=0.5
    ),
    "digits, CNN": Row("digits", "cnn", {"width": 4}),
}


@dataclass(frozen=True)
class Starts:
    """The same training from several initial precisions.

    Args:
        row: data set and network.
        train_size: images to train on.
        epochs: of training.
        every: epochs between two updates.
        initial: precisions, the same for all layers.
    """

    row: str = "MNIST, CNN"
    train_size: int = 10_000
    epochs: int = 10
    every: int = 2
    initial: tuple[float, ...] = (1e-4, 1.0, 1e4)


@dataclass(frozen=True)
class Settings:
    """What is trained, and how.

    Args:
        rows: which of the table, each for every seed where it has a perceptron, for the first seed otherwise.
        train_size: images to train on; the networks of the validation grid and of the marginal likelihood see the same.
        epochs: of training, Adam with learning rate 2e-3 falling by a cosine, batches of 64.
        every: epochs between two updates of the precisions.
        grid: precisions to choose from on 2,000 validation images.
        starts: the training from several initial precisions.
        all_seeds: every row for every seed.
    """

    rows: tuple[str, ...] = (
        "MNIST, MLP",
        "MNIST, CNN",
        "Fashion-MNIST, MLP",
        "Fashion-MNIST, CNN",
        "CIFAR-10, CNN",
        "CIFAR-10, ResNet",
    )
    train_size: int = 3_000
    epochs: int = 10
    every: int = 2
    grid: tuple[float, ...] = (0.1, 0.316, 1.0, 3.16, 10.0, 31.6, 100.0, 316.0)
    starts: Starts = Starts()
    all_seeds: bool = False


PRESETS = {
    "small": Settings(),
    "paper": Settings(
        rows=(*Settings().rows, "Fashion-MNIST, ResNet"),
        train_size=58_000,
        epochs=250,
        every=1,
        starts=Starts(train_size=58_000, epochs=250, every=1),
        all_seeds=True,
    ),
}

#: Validation images; test images of the linearised predictive, of which each costs a backward pass for each class.
VALIDATION, LINEARISED = 2_000, 1_000
#: Learning rate of Adam at its highest, and images for each of its steps.
RATE, BATCH = 2e-3, 64
LIKELIHOOD = Categorical()


@dataclass(frozen=True)
class Task:
    """One row with one seed: its data, and how its network is trained."""

    row: Row
    data: Dataset
    seed: int
    epochs: int
    every: int
    wide: bool

    def network(self) -> nn.Module:
        """The network at its initial weights."""
        with seeded(self.seed):
            options = self.row.paper if self.wide else self.row.small
            return build(self.row.network, self.data.input_shape, self.data.outputs, **options)

    def train(self, method: MAP | MarginalLikelihood) -> Training:
        """Train with the row's settings."""
        how: dict[str, Any] = {"epochs": self.epochs, "lr": RATE, "batch_size": BATCH, "seed": self.seed}
        return train(method, self.data.train, **how, device="cpu", progress=False)

    def by_evidence(self, initial: float = 1.0, update: str = "fixed_point", burn_in: int = 0) -> Training:
        """Layerwise precisions by the marginal likelihood, with a curvature of one sampled label for each image."""
        settings = EvidenceUpdates(update, burn_in, self.every)
        method = MarginalLikelihood(
            self.network(), LIKELIHOOD, Layerwise(initial), settings, structure="kron", curvature="fisher"
        )
        return self.train(method)

    def on_grid(self, grid: Sequence[float]) -> list[tuple[float, nn.Module]]:
        """One network for each precision, with its NLL on the validation images."""
        found = []
        for precision in grid:
            model = self.train(MAP(self.network(), LIKELIHOOD, precision)).model
            found.append((-float(log_likelihoods(model, self.data.validation).mean()), model))
        return found


@torch.no_grad()
def outputs(model: nn.Module, x: Tensor) -> Float[Tensor, "N C"]:
    """Those of the network as it stands, without dropout and the like."""
    model.eval()
    return torch.cat([model(part) for part in x.split(1_000)])


def log_likelihoods(model: nn.Module, part: tuple[Tensor, Tensor]) -> Float[Tensor, " N"]:
    """log p(y|x) of each image by the network itself."""
    return LIKELIHOOD.log_prob(outputs(model, part[0]), part[1])


@experiment(
    "linlap-marglik",
    "Online marginal likelihood against cross-validation",
    "Linearised Laplace tutorial, section 3; table of [immer2021b]",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """The table, and the training from several initial precisions."""
    starts, absent = settings.starts, []
    found: dict[tuple[str, str], list[float]] = {}
    one = Settings(rows=(starts.row,), train_size=starts.train_size, epochs=starts.epochs, every=starts.every)
    data: dict[str, Any] = {"starts": from_starts(_task(starts.row, one, seeds[0], share=1.0), settings, progress)}
    todo = [
        (name, seed)
        for name in settings.rows
        for seed in (seeds if settings.all_seeds or ROWS[name].network == "mlp" else seeds[:1])
    ]
    for name, seed in track(todo, "rows of the table", len(todo), progress):
        try:
            task = _task(name, settings, seed)
        except FileNotFoundError:
            absent.append(name)
            continue
        for column, value in compared(task, settings.grid).items():
            found.setdefault((name, column), []).append(value)
    numbers = [*_numbers(found), *_of_starts(data["starts"])]
    data["absent"] = list(dict.fromkeys(absent))
    return Findings(tuple(numbers), claims(found, data["starts"]), data)


def _task(name: str, settings: Settings, seed: int, share: float | None = None) -> Task:
    row = ROWS[name]
    part = (1.0 if settings.all_seeds else row.share) if share is None else share
    size = round(settings.train_size * part)
    data = load(row.data, train_size=size, validation_size=None if row.data == "digits" else VALIDATION, seed=seed)
    return Task(row, data, seed, settings.epochs, settings.every, settings.all_seeds)


def compared(task: Task, grid: Sequence[float]) -> dict[str, float]:
    """The best network of the grid against that of the marginal likelihood, on the test images."""
    x, y = task.data.test
    chosen = min(task.on_grid(grid), key=lambda pair: pair[0])[1]
    q = task.by_evidence().posterior
    before, after = (log_likelihoods(model, (x, y)) for model in (chosen, q.model))
    gain = (after - before).double()
    return {
        f"{CV}: {ACCURACY}": _accuracy(chosen, x, y),
        f"{CV}: {LOG_LIKELIHOOD}": float(before.mean()),
        f"{ML}: {ACCURACY}": _accuracy(q.model, x, y),
        f"{ML}: {LOG_LIKELIHOOD}": float(after.mean()),
        f"{ML}, linearised: {LOG_LIKELIHOOD}": linearised(q, task.data.test),
        GAIN: float(gain.mean()),
        ERROR: float(gain.std() / len(gain) ** 0.5),
    }


def _accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return 100 * metrics.accuracy(outputs(model, x).softmax(-1), y)


def linearised(q: Gaussian, test: tuple[Tensor, Tensor]) -> float:
    """The log likelihood of the linearised predictive, on the first test images."""
    x, y = (part[:LINEARISED] for part in test)
    scores = [predict(q, a).log_prob(b).sum() for a, b in zip(x.split(250), y.split(250), strict=True)]
    return float(torch.stack(scores).sum()) / len(y)


def from_starts(task: Task, settings: Settings, progress: bool) -> dict[str, Any]:
    """The course of precisions and evidence from each start, two variants, and the validation grid."""
    initial = settings.starts.initial
    runs: dict[str, dict[str, Any]] = {f"{value:g}": {"initial": value} for value in initial}
    runs[BURN_IN] = {"initial": max(initial), "burn_in": 1}
    runs[BY_GRADIENT] = {"initial": sorted(initial)[len(initial) // 2], "update": "gradient"}
    courses = {}
    for name, how in track(list(runs.items()), "initial precisions", len(runs), progress):
        courses[name] = {"initial": how["initial"], **_course(task, task.by_evidence(**how))}
    grid = [
        {"precision": precision, "validation": nll, "test": -float(log_likelihoods(model, task.data.test).mean())}
        for precision, (nll, model) in zip(settings.grid, task.on_grid(settings.grid), strict=True)
    ]
    return {"row": settings.starts.row, "images": len(task.data.train[0]), "courses": courses, "grid": grid}


def _course(task: Task, done: Training) -> dict[str, Any]:
    rows = [row for row in done.history if "log_evidence" in row]
    names = [name.removeprefix("precision ") for name in rows[0] if name.startswith("precision ")]
    return {
        "epochs": [row["epoch"] for row in rows],
        "log_evidence": [row["log_evidence"] for row in rows],
        "effective_parameters": rows[-1]["effective_parameters"],
        "precisions": {name: [row[f"precision {name}"] for row in rows] for name in names},
        "learned": dict(zip(names, done.posterior.prior.precision.tolist(), strict=True)),
        "test": -float(log_likelihoods(done.posterior.model, task.data.test).mean()),
    }


def _numbers(found: Mapping[tuple[str, str], Sequence[float]]) -> list[Number]:
    columns = [f"{way}: {what}" for way in (CV, ML) for what in (ACCURACY, LOG_LIKELIHOOD)]
    printed = {
        (name, column): value for name, row in ROWS.items() for column, value in zip(columns, row.printed, strict=True)
    }
    return [
        Number(name, column, tuple(values), printed.get((name, column), "")) for (name, column), values in found.items()
    ]


def _of_starts(starts: Mapping[str, Any]) -> list[Number]:
    label = f"{starts['row']}, {starts['images']:,} images"
    best = min(starts["grid"], key=lambda point: point["validation"])
    found = {f"{label}: {CV} ({best['precision']:g})": best["test"]}
    for name, course in starts["courses"].items():
        start = f"from {course['initial']:g}"
        found[f"{label}: {start}" if start.endswith(name) else f"{label}: {start}, {name}"] = course["test"]
    return [
        Number(row, f"{ML}: {LOG_LIKELIHOOD}" if CV not in row else f"{CV}: {LOG_LIKELIHOOD}", (-nll,))
        for row, nll in found.items()
    ]


@measure.figure
def draw(record: Record) -> Any:
    """Evidence and precisions from each start, and the test NLL against the grid."""
    from experiments.linlap import figures

    starts = record.findings.data["starts"]
    heading = f"Prior precisions learned while training: {starts['row']}, {starts['images']:,} images"
    return figures.learned_precisions(starts["courses"], starts["grid"], heading)
