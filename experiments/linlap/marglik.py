"""Prior precisions by the online marginal likelihood against one chosen on validation data."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

import osculate as osc
from experiments import Claim, Findings, Number, Record, Runner, Table, experiment, paired, printed, seeded, train
from osculate.training import Training


@dataclass(frozen=True)
class Row:
    """A data set and a network.

    Attributes:
        data: Name of the data set.
        network: Name of the network.
        small: Options of the network at small scale.
        paper: Options of the document's network, if stated.
        printed: Accuracy and log likelihood by cross-validation, then by the marginal likelihood.
        share: Share of the training images at small scale.
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
        row: Data set and network.
        train_size: Number of training images.
        epochs: Epochs of training.
        every: Epochs between two updates.
        initial: Initial precisions, the same for all layers.
    """

    row: str = "MNIST, CNN"
    train_size: int = 10_000
    epochs: int = 10
    every: int = 2
    initial: tuple[float, ...] = (1e-4, 1.0, 1e4)


@dataclass(frozen=True)
class Settings:
    """The rows of the table, and the training.

    Args:
        rows: Rows of the table, by default those that the document prints. Those with a perceptron run for every seed,
            the others for the first one.
        train_size: Number of training images, the same for the validation grid and for the marginal likelihood.
        epochs: Epochs of Adam, with learning rate 2e-3 falling by a cosine and batches of 64.
        every: Epochs between two updates of the precisions.
        grid: Candidate precisions, of which 2,000 validation images choose one.
        starts: Training from several initial precisions.
        all_seeds: Run every row for every seed.
    """

    rows: tuple[str, ...] = tuple(name for name, row in ROWS.items() if any(row.printed))
    train_size: int = 3_000
    epochs: int = 10
    every: int = 2
    grid: tuple[float, ...] = (0.1, 0.316, 1.0, 3.16, 10.0, 31.6, 100.0, 316.0)
    starts: Starts = Starts()
    all_seeds: bool = False


#: Validation images, and test images of the linearised predictive, each of which costs a backward pass for each class.
VALIDATION, LINEARISED = 2_000, 1_000
#: Highest learning rate of Adam, and its batch size.
RATE, BATCH = 2e-3, 64
LIKELIHOOD = osc.likelihoods.Categorical()
#: Names of columns and of runs.
ACCURACY, LOG_LIKELIHOOD = "accuracy in %", "log likelihood"
CV, ML = "cross-validation", "marginal likelihood"
GAIN = "gain in log likelihood"
BURN_IN, BY_GRADIENT = "burn-in of one epoch", "by gradient"


@dataclass(frozen=True)
class Task:
    """One row with one seed.

    Attributes:
        row: Data set and network.
        data: Images.
        seed: Seed of the initial weights and of the batches.
        epochs: Epochs of training.
        every: Epochs between two updates of the precisions.
        wide: Train the network of the document.
    """

    row: Row
    data: osc.data.Dataset
    seed: int
    epochs: int
    every: int
    wide: bool

    @classmethod
    def of(cls, name: str, settings: Settings, seed: int, share: float | None = None) -> "Task":
        """Load the data of a row."""
        row = ROWS[name]
        part = (1.0 if settings.all_seeds else row.share) if share is None else share
        validation = None if row.data == "digits" else VALIDATION
        size = round(settings.train_size * part)
        data = osc.data.load(row.data, train_size=size, validation_size=validation, seed=seed)
        return cls(row, data, seed, settings.epochs, settings.every, settings.all_seeds)

    def network(self) -> nn.Module:
        """Return the network at its initial weights."""
        with seeded(self.seed):
            options = self.row.paper if self.wide else self.row.small
            return osc.networks.build(self.row.network, self.data.input_shape, self.data.outputs, **options)

    def train(self, method: osc.methods.MAP | osc.methods.MarginalLikelihood) -> Training:
        """Train with the settings of the row."""
        return train(method, self.data.train, epochs=self.epochs, lr=RATE, batch_size=BATCH, seed=self.seed)

    def by_evidence(self, initial: float = 1.0, update: str = "fixed_point", burn_in: int = 0) -> Training:
        """Learn layerwise precisions by the marginal likelihood, with a curvature of one sampled label per image."""
        updates, prior = osc.methods.EvidenceUpdates(update, burn_in, self.every), osc.priors.Layerwise(initial)
        network = self.network()
        return self.train(osc.methods.MarginalLikelihood(network, LIKELIHOOD, prior, updates, "kron", "fisher"))

    def on_grid(self, grid: Sequence[float]) -> list[tuple[float, nn.Module]]:
        """Train a network for each precision; return it with its NLL on the validation images."""
        models = [self.train(osc.methods.MAP(self.network(), LIKELIHOOD, precision)).model for precision in grid]
        return [(-float(log_likelihoods(model, self.data.validation).mean()), model) for model in models]


@torch.no_grad()
def outputs(model: nn.Module, x: Tensor) -> Float[Tensor, "N C"]:
    """Return the outputs of a network in evaluation mode."""
    model.eval()
    return torch.cat([model(part) for part in x.split(1_000)])


def log_likelihoods(model: nn.Module, part: tuple[Tensor, Tensor]) -> Float[Tensor, " N"]:
    """Return log p(y|x) of each image by the network itself."""
    return LIKELIHOOD.log_prob(outputs(model, part[0]), part[1])


@experiment(
    "linlap-marglik",
    "Online marginal likelihood against cross-validation",
    "Linearised Laplace tutorial, section 3; table of [immer2021b]",
    paper=Settings(
        rows=(*Settings().rows, "Fashion-MNIST, ResNet"),
        train_size=58_000,
        epochs=250,
        every=1,
        starts=Starts(train_size=58_000, epochs=250, every=1),
        all_seeds=True,
    ),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Measure the rows of the table, and the training from several initial precisions."""
    start, table = settings.starts, Table()
    one = Settings(rows=(start.row,), train_size=start.train_size, epochs=start.epochs, every=start.every)
    starts = from_starts(Task.of(start.row, one, seeds[0], share=1.0), settings, seeds[0], runner)
    repeated = [name for name in settings.rows if settings.all_seeds or ROWS[name].network == "mlp"]
    todo = [(name, seed) for name in settings.rows for seed in (seeds if name in repeated else seeds[:1])]
    absent = [name for name in dict.fromkeys(name for name, _ in todo) if not is_there(name, settings)]
    todo = [(name, seed) for name, seed in todo if name not in absent]
    apart: dict[str, list[Tensor]] = {}
    each = runner.each("rows of the table", todo, partial(row_of, settings))
    for (name, _), (found, by_image) in zip(todo, each, strict=True):
        table.add(name, found)
        for part, values in by_image.items():
            apart.setdefault(part, []).append(values)
    columns = [f"{way}: {what}" for way in (CV, ML) for what in (ACCURACY, LOG_LIKELIHOOD)]
    theirs = printed(columns, {name: row.printed for name, row in ROWS.items()})
    numbers = (*table.numbers(printed=theirs), *numbers_of_starts(starts))
    errors = {part: float(f"{paired.bootstrap_error(torch.stack(rows).numpy()):.3g}") for part, rows in apart.items()}
    return Findings(numbers, claims(starts), {"starts": starts, "absent": absent, paired.ERRORS: errors})


def compared(name: str, task: Task, grid: Sequence[float]) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Compare the best network of the grid with that of the marginal likelihood on the test images.

    Returns:
        Numbers by column, and the differences of each image by part of a claim.
    """
    x, y = task.data.test
    chosen = min(task.on_grid(grid), key=lambda pair: pair[0])[1]
    q = task.by_evidence().posterior
    found, logs, right = {}, {}, {}
    for way, model in ((CV, chosen), (ML, q.model)):
        logs[way] = log_likelihoods(model, (x, y)).double()
        right[way] = 100 * (outputs(model, x).argmax(-1) == y).double()
        found[f"{way}: {ACCURACY}"] = float(right[way].mean())
        found[f"{way}: {LOG_LIKELIHOOD}"] = float(logs[way].mean())
    gain = logs[ML] - logs[CV]
    by_image = {
        f"{name}, {GAIN}": gain,
        paired.columns_of(name, f"{ML}: {ACCURACY}", f"{CV}: {ACCURACY}"): right[ML] - right[CV],
    }
    parts = zip(x[:LINEARISED].split(250), y[:LINEARISED].split(250), strict=True)
    linearised = torch.stack([osc.predict(q, a).log_prob(b).sum() for a, b in parts]).sum()
    found[f"{ML}, linearised: {LOG_LIKELIHOOD}"] = float(linearised) / len(y[:LINEARISED])
    return found | {GAIN: float(gain.mean())}, by_image


def is_there(name: str, settings: Settings) -> bool:
    """True if the data of a row are."""
    try:
        Task.of(name, settings, 0)
    except FileNotFoundError:
        return False
    return True


def row_of(settings: Settings, name: str, seed: int) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Return the numbers of a row, and the differences of each image."""
    return compared(name, Task.of(name, settings, seed), settings.grid)


def from_starts(task: Task, settings: Settings, seed: int, runner: Runner) -> dict[str, Any]:
    """Return the course of precisions and evidence from each start, two variants, and the validation grid."""
    initial = settings.starts.initial
    runs: dict[str, dict[str, Any]] = {f"{value:g}": {"initial": value} for value in initial}
    runs[BURN_IN] = {"initial": max(initial), "burn_in": 1}
    runs[BY_GRADIENT] = {"initial": sorted(initial)[len(initial) // 2], "update": "gradient"}

    def course(name: str, _: int) -> dict[str, Any]:
        done = task.by_evidence(**runs[name])
        rows = [row for row in done.history if "log_evidence" in row]
        names = [key.removeprefix("precision ") for key in rows[0] if key.startswith("precision ")]
        return {
            "initial": runs[name]["initial"],
            "epochs": [row["epoch"] for row in rows],
            "log_evidence": [row["log_evidence"] for row in rows],
            "effective_parameters": rows[-1]["effective_parameters"],
            "precisions": {name: [row[f"precision {name}"] for row in rows] for name in names},
            "learned": dict(zip(names, done.posterior.prior.precision.tolist(), strict=True)),
            "test": -float(log_likelihoods(done.posterior.model, task.data.test).mean()),
        }

    def on_grid(_: int) -> list[dict[str, float]]:
        return [
            {"precision": precision, "validation": nll, "test": -float(log_likelihoods(model, task.data.test).mean())}
            for precision, (nll, model) in zip(settings.grid, task.on_grid(settings.grid), strict=True)
        ]

    # the seed names the cells, which other seeds must not take
    courses = dict(zip(runs, runner.each("initial precisions", [(name, seed) for name in runs], course), strict=True))
    (grid,) = runner.each("validation grid", [(seed,)], on_grid)
    return {"row": settings.starts.row, "images": len(task.data.train[0]), "courses": courses, "grid": grid}


def numbers_of_starts(starts: Mapping[str, Any]) -> list[Number]:
    """Return the test log likelihood of the grid's best network, and from each start."""
    label = f"{starts['row']}, {starts['images']:,} images"
    best = min(starts["grid"], key=lambda point: point["validation"])
    numbers = [Number(f"{label}: {CV} ({best['precision']:g})", f"{CV}: {LOG_LIKELIHOOD}", (-best["test"],))]
    for name, course in starts["courses"].items():
        start = f"from {course['initial']:g}"
        row = f"{label}: {start}" if start.endswith(name) else f"{label}: {start}, {name}"
        numbers.append(Number(row, f"{ML}: {LOG_LIKELIHOOD}", (-course["test"],)))
    return numbers


def spread(courses: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the largest difference of learned log precisions, by parameter tensor."""
    logs = {name: [math.log(course["learned"][name]) for course in courses] for name in courses[0]["learned"]}
    return {name: max(values) - min(values) for name, values in logs.items()}


def claims(starts: Mapping[str, Any]) -> Iterator[Claim]:
    """Yield the claims that need words, from the training from several starts."""
    courses = starts["courses"]
    plain = {name: course for name, course in courses.items() if name not in (BURN_IN, BY_GRADIENT)}
    late, gradient = courses[BURN_IN], courses[BY_GRADIENT]
    fixed_point = courses[f"{gradient['initial']:g}"]
    best = min(starts["grid"], key=lambda point: point["test"])
    learned = ", ".join(f"{course['test']:.4f} from {name}" for name, course in plain.items())

    def apart(runs: Iterable[Mapping[str, Any]]) -> str:
        ranges = spread(list(runs))
        worst = max(ranges, key=ranges.__getitem__)
        return f"by up to {ranges[worst]:.2f} ({worst}, of {len(ranges)} parameter tensors)"

    yield Claim.over_seeds(
        "log likelihood by the evidence and by cross-validation",
        "Gains are those of the weights' own predictions. Both see the same training images; cross-validation also "
        "the validation images.",
    )
    yield Claim.over_seeds(
        "dependence on the initial precision",
        f"{starts['row']}, {starts['images']:,} images, initial precisions {', '.join(plain)}: log precisions differ "
        f"{apart(plain.values())}, biases included. The first update comes before the first epoch, and at fixed "
        "weights the evidence has one maximum: little else is to be expected. With one epoch of burn-in at "
        f"{late['initial']:g} the network ends with {late['effective_parameters']:.0f} effective parameters, a log "
        f"evidence of {late['log_evidence'][-1]:.2f} nats per image and a test NLL of {late['test']:.3f}: a constant, "
        "for ten classes 2.303, if it has collapsed.",
    )
    yield Claim.over_seeds(
        "test NLL beside a grid of precisions",
        f"Test NLL {learned}; the best of the grid on the test images themselves is {best['test']:.4f} at precision "
        f"{best['precision']:g}.",
    )
    yield Claim.over_seeds(
        "fixed point and gradient steps",
        f"From {gradient['initial']:g}, by the fixed point and by 100 steps of Adam (rate 0.1) for each update: test "
        f"NLL {fixed_point['test']:.4f} and {gradient['test']:.4f}, best log evidence "
        f"{max(fixed_point['log_evidence']):.4f} and {max(gradient['log_evidence']):.4f} nats per image; log "
        f"precisions differ {apart((fixed_point, gradient))}.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Draw evidence and precisions from each start, and the test NLL against the grid."""
    from experiments.linlap import figures

    starts = record.findings.data["starts"]
    heading = f"Prior precisions learned during training: {starts['row']}, {starts['images']:,} images"
    return figures.learned_precisions(starts["courses"], starts["grid"], heading)
